package routes_test

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// pathReaders find the segments of a path as apps do.
var pathReaders = map[string]func(string) []string{
	"decodes before it splits":      func(p string) []string { return split(unescape(p)) },
	"splits before it decodes":      func(p string) []string { return each(split(p), unescape) },
	"decodes values only":           func(p string) []string { return decodeBehindFirst(split(p)) },
	"ignores case":                  func(p string) []string { return lowerFirst(each(split(p), unescape)) },
	"ignores case, does not decode": func(p string) []string { return decodeBehindFirst(lowerFirst(split(p))) },
	"drops parameters":              func(p string) []string { return each(each(split(p), bare), unescape) },
	"drops parameters, cleans": func(p string) []string {
		return split(path.Clean(unescape(strings.Join(each(strings.Split(p, "/"), bare), "/"))))
	},
	"decodes, drops parameters": func(p string) []string { return each(split(unescape(p)), bare) },
	"merges slashes":            func(p string) []string { return split(regexp.MustCompile("/+").ReplaceAllString(unescape(p), "/")) },
	"cleans dots":               func(p string) []string { return split(path.Clean(unescape(p))) },
	"takes backslashes for slashes": func(p string) []string {
		return lowerFirst(split(path.Clean(strings.ReplaceAll(unescape(p), `\`, "/"))))
	},
	"does all of it": func(p string) []string {
		return lowerFirst(each(split(path.Clean(strings.ReplaceAll(unescape(strings.Join(each(strings.Split(p, "/"), bare), "/")), `\`, "/"))), bare))
	},
}

func split(p string) []string {
	return strings.Split(strings.Trim(strings.TrimPrefix(p, "/"), ""), "/")
}

func unescape(s string) string {
	if d, err := url.PathUnescape(s); err == nil {
		return d
	}
	return s
}

func bare(s string) string { s, _, _ = strings.Cut(s, ";"); return s }

func each(list []string, change func(string) string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = change(s)
	}
	return out
}

func lowerFirst(list []string) []string {
	return append([]string{strings.ToLower(list[0])}, list[1:]...)
}

func decodeBehindFirst(list []string) []string {
	return append(list[:1:1], each(list[1:], unescape)...)
}

// resource is what an app with the routes of FuzzReadersOfPaths works on, "" if that
// has no key.
func resource(segments []string) string {
	if len(segments) < 2 || segments[1] == "" {
		return ""
	}
	switch segments[0] {
	case "orders":
		return "orders " + segments[1]
	case "nums":
		if n, err := strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(segments[1]), "_", "")); err == nil {
			return "nums " + strconv.Itoa(n)
		}
	}
	return ""
}

// FuzzReadersOfPaths looks for a path that the table takes and some app reads as another
// resource than the one that the key names.
func FuzzReadersOfPaths(f *testing.F) {
	all := table(f,
		`name: orders, match: {path: "/orders/{id}/"}, key: path:id`,
		`name: nums, match: {path: "/nums/{n:int}/"}, key: path:n`,
		`name: rest, without-key: any`)
	pieces := []string{"/", "/", "/", "/", "orders", "orders", "Orders", "%6frders", "%4Frders", "nums", "NUMS", "42", "42", "042", "+42", "-0", "%2042", "4_2", "%D9%A4%D9%A2",
		"a", "B", ";", ";x=1", "%3B", "..", ".", "%2e", "%2E%2e", "%2f", "%2F", "%5c", `\`, "%25", "%2541", "%c0%af", "%C3%A9", "e%CC%81", "%20", "@", ":", "+", "%zz", "%00"}
	for seed := range uint64(20_000) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var p strings.Builder
		p.WriteString("/")
		for range 1 + rnd.IntN(8) {
			p.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		f.Add(p.String())
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(target, "/") || strings.ContainsAny(target, "?#") {
			return
		}
		p := u.EscapedPath()
		r, err := all.Match("h", "GET", p)
		if err != nil {
			return
		}
		want := ""
		if len(r.Keys) > 0 {
			key, err := r.Key(keyed(&http.Request{URL: u, Header: http.Header{}}), new([]byte))
			if err != nil {
				return
			}
			want = r.Name + " " + key
		}
		for name, read := range pathReaders {
			if got := resource(read(p)); got != want && got != "" {
				t.Errorf("%s: the key's is %q; an app that %s has %q", p, want, name, got)
			}
		}
	})
}
