package sidecar

import (
	"encoding/hex"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// foldedPath is a path as the most lenient app reads it.
type foldedPath struct {
	segments []string // decoded, in one case, without empty and dot segments
	odd      bool     // it has empty or dot segments: apps differ in what these leave
}

// foldPath folds the path of a target: escapes are decoded until none is left, backslashes become
// slashes, letters have one case, and segments end where parameters, a query or a fragment begin.
// It fails for control characters and text that is not UTF-8, since some apps drop these.
func foldPath(target string) (p foldedPath, err error) {
	target, _, _ = strings.Cut(target, "?")
	text := make([]byte, 0, len(target))
	for i := range len(target) {
		text = append(text, target[i])
		for n := len(text) - 3; n >= 0 && text[n] == '%'; n = len(text) - 3 {
			shorter, err := hex.AppendDecode(text[:n], text[n+1:])
			if err != nil {
				break
			}
			text = shorter
		}
	}
	decoded := string(text)
	if !utf8.ValidString(decoded) || strings.ContainsFunc(decoded, unicode.IsControl) {
		return p, errors.New("worker: the path has control characters, or is not in UTF-8")
	}
	decoded = strings.ToLower(strings.ToUpper(strings.ReplaceAll(decoded, `\`, "/")))
	segments := strings.Split(strings.Trim(decoded, "/"), "/")
	p.odd = strings.HasPrefix(decoded, "//")
	for _, segment := range segments {
		if end := strings.IndexAny(segment, ";?#"); end >= 0 {
			segment = segment[:end]
		}
		if strings.Trim(segment, ". ") != "" {
			p.segments = append(p.segments, segment)
		} else if decoded != "/" {
			p.odd = true
		}
	}
	return p, nil
}

// ownPath is the folded path that batches are sent to. Only Keyway's own requests may reach the app
// there.
type ownPath []string

// owns reports whether some app could take target for the path, or for one beneath it.
func (want ownPath) owns(target string) bool {
	if want == nil {
		return false
	}
	p, err := foldPath(target)
	if err != nil || target != "*" && !strings.HasPrefix(target, "/") {
		return true
	}
	for i, segment := range p.segments {
		switch {
		case sameSegment(segment, want[0]):
			want = want[1:]
		case !p.odd && (i > 0 || !strings.HasSuffix(segment, ".php")): // a script of PHP is no part of the app's path
			return false
		}
		if len(want) == 0 {
			return true
		}
	}
	return false
}

// sameSegment reports whether segment is own, perhaps with something behind it that some apps
// do not count, such as a suffix that names a format.
func sameSegment(segment, own string) bool {
	rest, ok := strings.CutPrefix(segment, own)
	return ok && (rest == "" || strings.IndexByte(".:, ", rest[0]) >= 0)
}
