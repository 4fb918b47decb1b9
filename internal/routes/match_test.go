package routes_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/pattern"
	"github.com/keyway-go/keyway/internal/routes"
)

// hundred makes a table of so many routes, which differ by their paths or their hosts.
func hundred(t testing.TB) *routes.Table {
	var lines []string
	for i := range 50 {
		lines = append(lines,
			fmt.Sprintf(`name: p%02d, match: {hosts: [shop.example], methods: [GET, POST], path: "/service-%02d/orders/{id}/"}, key: path:id`, i, i),
			fmt.Sprintf(`name: h%02d, match: {hosts: ["*.tenant-%02d.example"], path: "/orders/{id}"}, key: path:id`, i, i))
	}
	return table(t, lines...)
}

// lookups are requests for the last routes of hundred, by their names.
var lookups = []struct{ name, host, path string }{
	{"p49", "shop.example:80", "/service-49/orders/42/items"},
	{"h49", "eu.tenant-49.example", "/orders/42"},
	{"p49", "shop.example", "/service-49/orders/01HF7YAT00"},
}

func TestMatchingAllocatesNothing(t *testing.T) {
	all := hundred(t)
	for _, l := range lookups {
		if r, err := all.Match(l.host, "POST", l.path); err != nil || r.Name != l.name {
			t.Errorf("%s%s: %v, %v", l.host, l.path, r, err)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = all.Match(l.host, "POST", l.path) }); n > 0 {
			t.Errorf("%s%s: %v allocations", l.host, l.path, n)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	all := hundred(b)
	for _, l := range lookups {
		b.Run(l.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := all.Match(l.host, "POST", l.path); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// linear is what a table's index must find: a look at one route after the other.
func linear(t *testing.T, all *routes.Table, host, method, path string) string {
	for _, r := range all.Routes() {
		m := r.Match
		hosts := len(m.Hosts) == 0 || slices.ContainsFunc(m.Hosts, func(h string) bool {
			below, wild := strings.CutPrefix(h, "*")
			return h == host || wild && len(host) > len(below) && strings.HasSuffix(host, below)
		})
		methods := len(m.Methods) == 0 || slices.Contains(m.Methods, method) || method == "HEAD" && slices.Contains(m.Methods, "GET")
		if !hosts || !methods {
			continue
		}
		if m.Path != "" {
			p, err := pattern.Parse(m.Path)
			if err != nil {
				t.Fatal(err)
			}
			if !p.Match(path) {
				continue
			}
		}
		return r.Name
	}
	return ""
}

// FuzzMatch compares a table's index with a look at one route after the other, for routes
// and a request that are made of few parts, so that many of them are alike.
func FuzzMatch(f *testing.F) {
	for seed := range uint64(2000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		one := func(of ...string) string { return of[rnd.IntN(len(of))] }
		var lines []string
		for i := range 1 + rnd.IntN(12) {
			line := fmt.Sprintf("name: r%d, key: host", i)
			var match []string
			if hosts := one("", "h", "a.h", `"*.h"`, `"*.h", h`, `"*.a.h"`); hosts != "" {
				match = append(match, "hosts: ["+hosts+"]")
			}
			if methods := one("", "", "GET", "POST, PUT"); methods != "" {
				match = append(match, "methods: ["+methods+"]")
			}
			if path := randomPattern(one); path != "" {
				match = append(match, `path: "`+path+`"`)
			}
			if len(match) > 0 {
				line += ", match: {" + strings.Join(match, ", ") + "}"
			}
			lines = append(lines, line)
		}
		all, err := routes.Parse("f", []byte(text(lines...)))
		if err != nil {
			return // a route that no request could reach
		}
		host, method, path := one("h", "a.h", "b.a.h", ".h", "x"), one("GET", "HEAD", "POST", "DELETE"), ""
		for range 1 + rnd.IntN(4) {
			path += "/" + one("a", "b", "%61", "c%20c", "")
		}
		r, err := all.Match(host, method, path)
		if errors.Is(err, gateway.ErrBadKey) {
			return
		}
		got := ""
		if err == nil {
			got = r.Name
		}
		if want := linear(t, all, host, method, path); got != want {
			t.Errorf("%s %s%s takes the route %q, want %q of\n%s", method, host, path, got, want, strings.Join(lines, "\n"))
		}
	})
}

// randomPattern returns a pattern of up to three segments, or none.
func randomPattern(one func(...string) string) string {
	var parts []string
	for _, wildcard := range []string{"{x}", "{y}", "{z}"} {
		parts = append(parts, one("a", "b", "%61", "c c", wildcard))
		if one("more", "enough") == "enough" {
			break
		}
	}
	path := "/" + strings.Join(parts, "/")
	return one("", path, path, path, path+"/", path+"/{$}", path+"/{rest...}", "/", "/{$}")
}
