package pattern

import (
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Marks are what a path has in it that its readers treat differently.
type Marks uint8

// The marks.
const (
	Upper   Marks = 1 << iota // a letter in upper case
	Escaped                   // a percent sign
	Divider                   // a semicolon or a backslash
	dotted
)

var marksOf = func() (of [256]Marks) {
	for c := 'A'; c <= 'Z'; c++ {
		of[c] = Upper
	}
	of['%'], of[';'], of['\\'], of['.'] = Escaped, Divider, Divider, dotted
	return of
}()

// Look returns the marks of a percent-encoded path. clean reports whether every reader finds the
// same segments in it. That is so if no segment is empty or made of dots, even after escapes are
// decoded, backslashes become slashes, or parameters after semicolons are removed. A path with bad
// escapes is not clean.
func Look(path string) (marks Marks, clean bool) {
	for i := range len(path) {
		marks |= marksOf[path[i]]
	}
	if marks&(Escaped|Divider) == 0 {
		return marks &^ dotted, !strings.Contains(path, "//") && (marks&dotted == 0 || !HasDots(path))
	}
	marks &^= dotted
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return marks, false
	}
	read := strings.ReplaceAll(decoded, `\`, "/")
	bare := cutParameters(read)
	return marks, !strings.Contains(read, "//") && !HasDots(read) && !strings.Contains(bare, "//") && !HasDots(bare)
}

// HasDots reports whether a segment of path is . or ..
func HasDots(path string) bool {
	for {
		i := strings.Index(path, "/.")
		if i < 0 {
			return false
		}
		path = path[i+1:]
		if part, _, _ := strings.Cut(path, "/"); part == "." || part == ".." {
			return true
		}
	}
}

// cutParameters returns path without what stands behind a semicolon in its segments.
func cutParameters(path string) string {
	if strings.IndexByte(path, ';') < 0 {
		return path
	}
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i], _, _ = strings.Cut(parts[i], ";")
	}
	return strings.Join(parts, "/")
}

var (
	slashes    = strings.NewReplacer("%2F", "/", "%2f", "/", "%5C", "/", "%5c", "/", `\`, "/")
	semicolons = strings.NewReplacer("%3B", ";", "%3b", ";")
)

// Readings returns the paths that apps may take for a clean path with these marks,
// percent-encoded and in lower case. Some apps ignore case, some do not decode
// before they compare, some decode before they look for slashes, some drop parameters.
//
// Patterns look at the first segments, depth of them, and the paths end one segment later: a client can
// send thousands.
func Readings(path string, marks Marks, depth int) []string {
	path = firstSegments(path, depth+1) // each reading has at least as many
	list := []string{fold(path, depth)}
	if marks&(Escaped|Divider) == 0 {
		return list
	}
	plain, bare := slashes.Replace(path), cutParameters(semicolons.Replace(path))
	for _, p := range []string{strings.ReplaceAll(path, "%", "%25"), plain, bare, slashes.Replace(bare), cutParameters(semicolons.Replace(plain))} {
		if p = fold(p, depth); !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// firstSegments returns the path up to the end of its segment n.
func firstSegments(path string, n int) string {
	for i := range len(path) {
		if path[i] != '/' {
			continue
		}
		if n--; n < 0 {
			return path[:i]
		}
	}
	return path
}

// fold returns the path up to the segment behind depth, with its segments in lower case.
func fold(path string, depth int) string {
	parts := strings.Split(firstSegments(path, depth+1), "/")
	for i, part := range parts {
		if decoded, err := url.PathUnescape(part); err == nil {
			parts[i] = url.PathEscape(strings.ToLower(decoded))
		}
	}
	return strings.Join(parts, "/")
}

// Fold returns the pattern with its literals in lower case.
func (p *Pattern) Fold() Pattern {
	lower := Pattern{segments: slices.Clone(p.segments), open: p.open}
	for i, s := range lower.segments {
		if !s.wild {
			lower.segments[i].text = strings.ToLower(s.text)
		}
	}
	return lower
}

// IsCased reports whether a literal of the pattern has letters in upper case.
func (p *Pattern) IsCased() bool { return p.cased }

// Misread reports whether an app may take a clean path with these marks for one that the pattern
// matches, although it does not.
func (p *Pattern) Misread(path string, marks Marks) bool {
	if marks == 0 && !p.cased {
		return false
	}
	lower := p.Fold()
	return slices.ContainsFunc(Readings(path, marks, p.Depth()), lower.Match)
}

// Divider returns a character of the path, encoded or not, at which some readers divide
// segments and others do not, unless it is one of chars; 0 if there is none.
func (m Marks) Divider(path, chars string) byte {
	if m&(Escaped|Divider) == 0 {
		return 0
	}
	decoded, _ := url.PathUnescape(strings.ReplaceAll(path, "/", ""))
	for i := range len(decoded) {
		if c := decoded[i]; (c == '/' || c == '\\' || c == ';') && strings.IndexByte(chars, c) < 0 {
			return c
		}
	}
	return 0
}

// plainBytes are the characters of ASCII that all stacks read alike in a segment, encoded or not.
const plainBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~@:,+=!$&'()* "

var isPlain = func() (is [utf8.RuneSelf]bool) {
	for _, c := range plainBytes {
		is[c] = true
	}
	return is
}()

// decomposed are signs that Unicode composes with the letter before (NFC), or writes as others.
var decomposed = &unicode.RangeTable{R16: []unicode.Range16{
	{Lo: 0x0300, Hi: 0x036f, Stride: 1}, {Lo: 0x1100, Hi: 0x11ff, Stride: 1}, {Lo: 0x2126, Hi: 0x212b, Stride: 1}, {Lo: 0x3099, Hi: 0x309a, Stride: 1},
}}

// Odd returns the first character of a decoded segment that not all stacks read alike, and
// that is none of chars. ok is false if there is none.
func Odd(segment, chars string) (odd rune, ok bool) {
	for i, c := range segment {
		switch {
		case c == ' ' && (i == 0 || i == len(segment)-1): // numbers are read without it
		case c < utf8.RuneSelf && isPlain[c], c >= utf8.RuneSelf && (unicode.In(c, unicode.L, unicode.M, unicode.N) && !unicode.Is(decomposed, c)):
			continue
		}
		if !strings.ContainsRune(chars, c) {
			return c, true
		}
	}
	return 0, false
}
