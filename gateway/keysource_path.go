package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// pathPattern is a path of a ServeMux pattern of which one wildcard is the
// key.
type pathPattern struct {
	segments []segment
	open     bool // ends in a slash: matches every path below it, and itself without the slash
}

type segment struct {
	text  string // decoded literal
	wild  bool
	multi bool // {name...}: takes the rest of the path
	end   bool // {$}: matches only a path that ends in its slash
	key   bool
}

func parsePathPattern(text string) (pathPattern, error) {
	var p pathPattern
	if !strings.HasPrefix(text, "/") {
		return p, errors.New("a path's pattern begins with a slash")
	}
	if strings.Contains(text, "//") {
		return p, errors.New("a path with an empty segment is refused, so no pattern has one")
	}
	if err := checkMuxPattern(text); err != nil {
		return p, err
	}
	names, rest := []string{}, text[1:]
	for rest != "" {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		s := parseSegment(part)
		if s.wild {
			names = append(names, s.text)
		}
		p.segments = append(p.segments, s)
	}
	p.open = strings.HasSuffix(text, "/")
	for i := range p.segments {
		s := &p.segments[i]
		s.key = s.wild && (s.text == "key" || len(names) == 1)
		if s.key {
			return p, nil
		}
	}
	if len(names) == 0 {
		return p, errors.New("the pattern has no wildcard, such as {key}")
	}
	return p, fmt.Errorf("call one of the wildcards %s {key}", strings.Join(names, ", "))
}

func parseSegment(part string) segment {
	name, wild := strings.CutPrefix(part, "{")
	if !wild {
		decoded, err := url.PathUnescape(part)
		if err != nil {
			decoded = part
		}
		return segment{text: decoded}
	}
	name = strings.TrimSuffix(name, "}")
	if name == "$" {
		return segment{end: true}
	}
	name, multi := strings.CutSuffix(name, "...")
	return segment{text: name, wild: true, multi: multi}
}

// checkMuxPattern asks ServeMux, which reports by panic, whether it accepts
// the pattern.
func checkMuxPattern(pattern string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errors.New("not a pattern of net/http without method and host: " + strings.TrimPrefix(fmt.Sprint(v), "http: "))
		}
	}()
	http.NewServeMux().Handle(pattern, http.NotFoundHandler())
	return nil
}

// key returns what the pattern's wildcard matches in the escaped path, "" if
// the pattern does not match.
func (p *pathPattern) key(path string) (string, error) {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return "", nil
	}
	var raw string
	for i := range p.segments {
		s := &p.segments[i]
		switch {
		case s.end:
			if rest != "" {
				return "", nil
			}
			return p.decode(path, raw)
		case s.multi:
			if s.key {
				raw = rest
			}
			return p.decode(path, raw)
		}
		last := i == len(p.segments)-1
		part, tail, slash := strings.Cut(rest, "/")
		if last && slash && !p.open || !last && !slash || part == "" || !s.wild && !equalDecoded(part, s.text) {
			return "", nil
		}
		if s.key {
			raw = part
		}
		rest = tail
	}
	return p.decode(path, raw)
}

// decode refuses paths that an app may read as another one: it would see the
// same resource under two keys.
func (p *pathPattern) decode(path, raw string) (string, error) {
	for rest, more := path[1:], true; more; {
		var part string
		part, rest, more = strings.Cut(rest, "/")
		decoded, err := unescape(part, url.PathUnescape)
		if err != nil {
			return "", err
		}
		if decoded == "." || decoded == ".." || decoded == "" && more {
			return "", fmt.Errorf("%w: the path has a segment that is empty or made of dots", ErrBadKey)
		}
	}
	return unescape(raw, url.PathUnescape)
}

func equalDecoded(part, text string) bool {
	if part == text {
		return true
	}
	if !strings.Contains(part, "%") {
		return false
	}
	decoded, err := url.PathUnescape(part)
	return err == nil && decoded == text
}
