package keysource_test

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/test/kit"
)

// reader finds the values of a parameter or a cookie as some app does, and the one it takes.
type reader struct {
	separators string
	name       func(string) string // of the text in front of the =
	value      func(string) string
	last       bool
}

func decodePlus(s string) string {
	if d, err := url.QueryUnescape(s); err == nil {
		return d
	}
	return s
}

func decodePercent(s string) string {
	if d, err := url.PathUnescape(s); err == nil {
		return d
	}
	return s
}

func same(s string) string { return s }

func unquote(s string) string { return strings.Trim(s, `"`) }

func beforeBracket(s string) string {
	s, _, _ = strings.Cut(strings.TrimLeft(decodePlus(s), "[ "), "[")
	s, _, _ = strings.Cut(s, "]")
	return s
}

func (r reader) read(text string) (value string) {
	found := false
	for _, pair := range strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(r.separators, c) }) {
		n, v, _ := strings.Cut(pair, "=")
		if r.name(n) == "id" && (!found || r.last) {
			value, found = r.value(v), true
		}
	}
	return value
}

// fuzzReaders looks for a text that a source takes and some reader reads as another key.
func fuzzReaders(f *testing.F, pieces []string, readers map[string]reader, spec string, set func(r *http.Request, text string)) {
	for seed := range uint64(20_000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var text strings.Builder
		for range 1 + rnd.IntN(9) {
			text.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		f.Add(text.String())
	}
	source := kit.KeySources(f, spec)
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.Trim(text, " \t") // as of a field
		r := &http.Request{Method: "GET", URL: &url.URL{Path: "/"}, Header: http.Header{}}
		set(r, text)
		key, err := source.Extract(r)
		if err != nil {
			return
		}
		for name, reader := range readers {
			if got := reader.read(text); got != key {
				t.Errorf("%q: key %q; an app that %s has %q", text, key, name, got)
			}
		}
	})
}

func FuzzReadersOfQueries(f *testing.F) {
	fuzzReaders(f, []string{"&", "&", "id", "id", "id=", "id=A", "id=B", "ID=C", "x=1", ";", "=", "A", "%41", "+", "%2B", "[]", "[0]=", "%5B", "%69d=", "]", ".", "%00", "%26", "%3D", "%zz", "%ff", "\xff", "é", ","},
		map[string]reader{
			"takes the first":           {"&", decodePlus, decodePlus, false},
			"takes the last":            {"&", decodePlus, decodePlus, true},
			"divides at semicolons":     {"&;", decodePlus, decodePlus, false},
			"divides there, takes last": {"&;", decodePlus, decodePlus, true},
			"ignores case":              {"&", func(s string) string { return strings.ToLower(decodePlus(s)) }, decodePlus, false},
			"does not decode names":     {"&", same, decodePlus, true},
			"cuts names at brackets":    {"&", beforeBracket, decodePlus, true},
			"ends names at a NUL":       {"&", func(s string) string { s, _, _ = strings.Cut(decodePlus(s), "\x00"); return s }, decodePlus, true},
		}, "query:id", func(r *http.Request, text string) { r.URL.RawQuery = text })
}

func FuzzReadersOfCookies(f *testing.F) {
	trim := func(s string) string { return strings.Trim(s, " \t") }
	fuzzReaders(f, []string{";", "; ", "id=A", "id=B", "id", "=", "ID=C", "x=1", `"`, `\`, "101", ",", " ", "\t", "\u00a0", "\xa0", "+", "%41", "%69d=", "[0]=", "é", "(", ":"},
		map[string]reader{
			"takes the first":         {";", trim, trim, false},
			"takes the last":          {";", trim, trim, true},
			"keeps spaces":            {";", func(s string) string { return strings.TrimLeft(s, " \t") }, same, false},
			"trims what Unicode says": {";", strings.TrimSpace, trim, true},
			"divides at commas":       {";,", trim, trim, true},
			"unquotes":                {";", trim, func(s string) string { return strings.ReplaceAll(unquote(trim(s)), `\101`, "A") }, false},
			"decodes":                 {";", trim, func(s string) string { return decodePercent(trim(s)) }, false},
			"decodes plus":            {";", trim, func(s string) string { return decodePlus(trim(s)) }, false},
			"decodes names":           {";", func(s string) string { return decodePercent(trim(s)) }, trim, false},
			"ignores case":            {";", func(s string) string { return strings.ToLower(trim(s)) }, trim, false},
			"cuts names at brackets":  {";", func(s string) string { return beforeBracket(trim(s)) }, trim, true},
		}, "cookie:id", func(r *http.Request, text string) { r.Header.Set("Cookie", text) })
}
