package pattern

import (
	"slices"
	"strings"
	"testing"
)

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		p, q string
		want bool
	}{
		{"/", "/a/{b}", true},
		{"/{x...}", "/a/{b}/", true},
		{"/orders/", "/orders/{id}", true},
		{"/orders/", "/orders/{id}/{rest...}", true},
		{"/orders/", "/orders", true},
		{"/orders/{id}", "/orders/{other}", true},
		{"/orders/{id}", "/orders/new", true},
		{"/orders/new", "/orders/{id}", false},
		{"/orders/{id}", "/orders/{id}/", false},
		{"/orders/{id}", "/orders/{id...}", false},
		{"/orders/{id...}", "/orders/", false},
		{"/orders/{id}", "/carts/{id}", false},
		{"/orders/{id}/items", "/orders/{id}", false},
		{"/a/{$}", "/a/{$}", true},
		{"/a/", "/a/{$}", true},
		{"/a/{$}", "/a/", false},
		{"/%61", "/a", true},
	} {
		p, q := parse(t, tt.p), parse(t, tt.q)
		if got := p.Covers(&q); got != tt.want {
			t.Errorf("%s covers %s: %v", tt.p, tt.q, got)
		}
	}
}

func TestLook(t *testing.T) {
	for path, want := range map[string]bool{
		"/": true, "/a": true, "/a/": true, "/a/b.c/.d/...": true, "/a%20b": true, "/a%2Fb": true,
		"/a;b/c": true, "/a%3B/b": true, `/a\b`: true, "/..a/a../...": true,
		"/a%2F%2Fb": false, "/%2Fa": false, "/a/%2f": false, `/a\..\b`: false, "/a/..;/b": false, "/a/..%3bx/b": false, "/a/;x/b": false, "/a%5C/b": false,
		"//": false, "/a//b": false, "/.": false, "/a/..": false, "/a/./b": false, "/a/../b": false,
		"/%2e": false, "/a/%2E%2e/b": false, "/a/.%2e/b": false, "/a%2F..%2Fb": false, "/%zz": false, "/%": false,
	} {
		if _, got := Look(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestCanonical(t *testing.T) {
	for _, tt := range []struct{ text, name, want string }{
		{"/orders/{order}/", "order", "/orders/{key}/"},
		{"/{tenant}/o/{key}/{rest...}", "tenant", "/{key}/o/{_2}/{_3...}"},
		{"/o/{id}/{$}", "", "/o/{_1}/{$}"},
		{"/%6f/a%20b", "", "/o/a%20b"},
		{"/{a:int}/{b:int}", "a", "/{key:int}/{_1:int}"},
		{"/", "x", "/"},
	} {
		p := parse(t, tt.text)
		if got := p.Canonical(tt.name); got != tt.want {
			t.Errorf("%s of %s: %s", tt.text, tt.name, got)
		}
	}
}

// What one pattern covers no path of the other escapes, and what its canonical
// form says is the same pattern.
func FuzzCovers(f *testing.F) {
	f.Add("/orders/", "/orders/{id}", "/orders/7")
	f.Add("/orders/{a}", "/orders/b/{$}", "/orders/b/")
	f.Add("/{x...}", "/", "/a%2Fb")
	f.Fuzz(func(t *testing.T, a, b, path string) {
		p, err := Parse(a)
		q, err2 := Parse(b)
		if err != nil || err2 != nil || !strings.HasPrefix(path, "/") {
			return
		}
		if q.Match(path) && !p.Match(path) && p.Covers(&q) {
			t.Fatalf("%s is said to cover %s, but does not match %s", a, b, path)
		}
		again, err := Parse(q.Canonical(""))
		if err != nil || again.Match(path) != q.Match(path) {
			t.Fatalf("%s is written as %s: %v", b, q.Canonical(""), err)
		}
	})
}

func parse(t *testing.T, text string) Pattern {
	t.Helper()
	p, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// FuzzReadings: a pattern matches the readings as if they were whole, and they are short.
func FuzzReadings(f *testing.F) {
	for _, text := range []string{"/a/{b}", "/a/", "/a/{$}", "/A/{rest...}", "/"} {
		for _, path := range []string{"/a/b", "/A/b/c/d", "/a%2Fb/c;d/e", `/a\b%5Cc/`, "/x%3By/a/b", "/a/", "/%61/B%2f/c"} {
			f.Add(text, path)
		}
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		p, err := Parse(text)
		marks, clean := Look(path)
		if err != nil || !clean || !strings.HasPrefix(path, "/") {
			return
		}
		lower := p.Fold()
		short, long := Readings(path, marks, p.Depth()), Readings(path, marks, len(path))
		if got, want := slices.ContainsFunc(short, lower.Match), slices.ContainsFunc(long, lower.Match); got != want {
			t.Errorf("%s matches %q: %v, %q: %v", text, short, got, long, want)
		}
		for _, reading := range short {
			if strings.Count(reading, "/") > p.Depth()+1 {
				t.Errorf("%s: a reading of %q is %q", text, path, reading)
			}
		}
	})
}
