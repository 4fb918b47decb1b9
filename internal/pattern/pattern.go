// Package pattern has the path patterns of key sources and routes: those of [net/http.ServeMux]
// without method and host.
package pattern

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Pattern is a path with wildcards. Make one with [Parse].
//
// A pattern that ends in a slash matches every path below it, and the path without
// that slash. One that does not matches the path with a slash behind it too, since
// most apps take the two for one resource. Literals are compared decoded.
type Pattern struct {
	segments []segment
	open     bool // ends in a slash: matches every path below it
	cased    bool // some literal has upper case
}

type segment struct {
	text  string // decoded literal, or the wildcard's name
	wild  bool
	multi bool // {name...}: takes the rest of the path
	end   bool // {$}: matches only a path that ends in its slash
	whole bool // {name:int}: its values are whole numbers
}

// Parse reads a pattern such as /orders/{order}/items/.
func Parse(text string) (Pattern, error) {
	var p Pattern
	if !strings.HasPrefix(text, "/") {
		return p, errors.New("a path's pattern begins with a slash")
	}
	if strings.Contains(text, "//") {
		return p, errors.New("a path with an empty segment is refused, so no pattern has one")
	}
	if err := checkMux(strings.ReplaceAll(text, ":int}", "}")); err != nil {
		return p, err
	}
	for rest := text[1:]; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		s := parseSegment(part)
		if s.multi && s.whole {
			return p, errors.New("a wildcard for the rest of a path cannot be :int")
		}
		p.segments = append(p.segments, s)
		p.cased = p.cased || !s.wild && strings.ToLower(s.text) != s.text
	}
	p.open = strings.HasSuffix(text, "/")
	return p, nil
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
	name, whole := strings.CutSuffix(name, ":int")
	name, multi := strings.CutSuffix(name, "...")
	return segment{text: name, wild: true, multi: multi, whole: whole}
}

// checkMux asks ServeMux, which reports by panic, whether it accepts the pattern.
func checkMux(pattern string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errors.New("not a pattern of net/http without method and host: " + strings.TrimPrefix(fmt.Sprint(v), "http: "))
		}
	}()
	http.NewServeMux().Handle(pattern, http.NotFoundHandler())
	return nil
}

// Literals returns the decoded segments before the first wildcard. Every path that the pattern
// matches begins with them.
func (p *Pattern) Literals() []string {
	var list []string
	for _, s := range p.segments {
		if s.wild || s.end {
			break
		}
		list = append(list, s.text)
	}
	return list
}

// Depth returns how many segments of a path the pattern looks at.
func (p *Pattern) Depth() int { return len(p.segments) }

// Wildcards returns the names of the wildcards in their order.
func (p *Pattern) Wildcards() []string {
	var names []string
	for _, s := range p.segments {
		if s.wild {
			names = append(names, s.text)
		}
	}
	return names
}

// IsWhole reports whether the wildcard of that name stands for whole numbers.
func (p *Pattern) IsWhole(name string) bool {
	return slices.ContainsFunc(p.segments, func(s segment) bool { return s.wild && s.whole && s.text == name })
}

// Canonical returns a pattern that matches the same paths. It calls the wildcard of that name {key}
// and numbers the others. A name that the pattern does not have stands for none.
func (p *Pattern) Canonical(name string) string {
	var b strings.Builder
	for i, s := range p.segments {
		b.WriteByte('/')
		dots := ""
		switch {
		case s.multi:
			dots = "..."
		case s.whole:
			dots = ":int"
		}
		switch {
		case s.end:
			b.WriteString("{$}")
		case s.wild && s.text == name:
			b.WriteString("{key" + dots + "}")
		case s.wild:
			b.WriteString("{_" + strconv.Itoa(i) + dots + "}")
		default:
			b.WriteString(url.PathEscape(s.text))
		}
	}
	if p.open || len(p.segments) == 0 {
		b.WriteByte('/')
	}
	return b.String()
}

// Match reports whether the pattern matches the path, which is percent-encoded.
func (p *Pattern) Match(path string) bool {
	_, ok := p.Value(path, "")
	return ok
}

// Value returns what the wildcard of that name matches in the path; both are
// percent-encoded. ok is false if the pattern does not match.
func (p *Pattern) Value(path, name string) (raw string, ok bool) {
	rest, slash := strings.CutPrefix(path, "/")
	return p.value(0, rest, slash, name)
}

// MatchBehind reports whether the pattern matches a path whose first segments, n of
// them, are the first n of Literals. rest is what stands behind the slash that follows
// them; slash says whether one does.
func (p *Pattern) MatchBehind(n int, rest string, slash bool) bool {
	_, ok := p.value(n, rest, slash, "")
	return ok
}

// value is Value from the segment n on.
func (p *Pattern) value(n int, rest string, slash bool, name string) (raw string, ok bool) {
	for ; n < len(p.segments) && slash; n++ {
		s := &p.segments[n]
		switch {
		case s.end:
			return raw, rest == ""
		case s.multi:
			if s.text == name {
				raw = rest
			}
			return raw, true
		}
		part, tail, more := strings.Cut(rest, "/")
		if part == "" || !s.wild && !equalDecoded(part, s.text) {
			return "", false
		}
		if s.wild && s.text == name {
			raw = part
		}
		rest, slash = tail, more
	}
	return raw, n == len(p.segments) && (n > 0 || slash) && (rest == "" || p.open)
}

// equalDecoded reports whether a segment of a path is the literal.
func equalDecoded(part, text string) bool {
	decoded, err := url.PathUnescape(part)
	return err == nil && decoded == text
}

// Covers reports whether p matches every path that q matches. It may say false
// of patterns that take some thought.
func (p *Pattern) Covers(q *Pattern) bool {
	for i := range p.segments {
		s := &p.segments[i]
		if s.multi {
			return i < len(q.segments)
		}
		if i >= len(q.segments) {
			return false
		}
		t := &q.segments[i]
		switch {
		case t.multi, s.end != t.end, !s.wild && t.wild, !s.wild && s.text != t.text:
			return false
		case s.end:
			return true
		}
	}
	if p.open {
		return true
	}
	return len(p.segments) == len(q.segments) && !q.open && !slices.ContainsFunc(q.segments, func(s segment) bool { return s.multi })
}
