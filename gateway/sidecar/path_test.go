package sidecar

import (
	"math/rand/v2"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"
)

// readings are ways in which apps take the path of a target, by whom.
var readings = map[string]func(target string) string{
	"Go": func(target string) string {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return ""
		}
		return path.Clean(u.Path)
	},
	"nginx": func(target string) string {
		return path.Clean(decoded(before(target, "?#")))
	},
	"Tomcat": func(target string) string {
		return path.Clean(decoded(parameters.ReplaceAllString(before(target, "?"), "")))
	},
	"Tomcat, backslashes": func(target string) string {
		return path.Clean(strings.ReplaceAll(decoded(parameters.ReplaceAllString(before(target, "?"), "")), `\`, "/"))
	},
	"Express": func(target string) string {
		return decoded(strings.ToLower(strings.TrimSuffix(before(target, "?"), "/")))
	},
	"proxy before the app": func(target string) string {
		return path.Clean(decoded(path.Clean(decoded(before(target, "?")))))
	},
	"slashes stay encoded": func(target string) string {
		return decoded(path.Clean(strings.ReplaceAll(strings.ReplaceAll(before(target, "?"), "%2f", "%252f"), "%2F", "%252F")))
	},
	"Rails": func(target string) string {
		return before(decoded(path.Clean(before(target, "?"))), ".")
	},
	"PHP": func(target string) string {
		return strings.TrimPrefix(decoded(before(target, "?")), "/index.php")
	},
	"IIS": func(target string) string {
		return path.Clean(strings.TrimRight(strings.ToLower(decoded(before(target, "?"))), ". "))
	},
	"no dot segments": func(target string) string {
		return strings.NewReplacer("/./", "/", "//", "/").Replace(decoded(before(target, "?")))
	},
}

var (
	parameters = regexp.MustCompile(`;[^/]*`)
	escape     = regexp.MustCompile(`%[0-9a-fA-F]{2}`)
)

func before(s, any string) string {
	if i := strings.IndexAny(s, any); i >= 0 {
		return s[:i]
	}
	return s
}

// decoded decodes escapes once, and leaves what is none.
func decoded(s string) string {
	return escape.ReplaceAllStringFunc(s, func(e string) string {
		c, err := url.PathUnescape(e)
		if err != nil {
			return e
		}
		return c
	})
}

var batchPaths = map[string]bool{
	"/batch": true, "/batch/": true, "/batch?x=1": true, "/%62atch": true, "/%62%61tch": true, "/%2562atch": true, "/Batch": true, "/BATCH/": true,
	"/x/../batch/": true, "/x/%2e%2e/batch": true, "/x%2f..%2fbatch": true, "/x/..;/batch": true, "/a%2fb/../batch": true, "//batch": true, "/./batch": true,
	"/batch;x": true, "/batch;x=1/": true, "/batch%3bx": true, "/batch%23x": true, "/batch#x": true, "/batch%3Fx": true, "/;/batch": true, `/\batch`: true, "/%5cbatch": true,
	"/batch.json": true, "/batch.": true, "/batch%20": true, "/batch/x": true, "/batch%00": true, "/bat%09ch": true, "/batch%ff": true, "/index.php/batch": true,
	"/batc\u212a": false, "/x%252f..%252fbatch": true, "http://host/batch": true, "/ba%54ch": true, "/%25%36%32atch": true,
	"/": false, "/batches": false, "/batch-2": false, "/orders/batch": false, "/orders/4.2/batch": false, "/stock/42?next=/batch": false, "/x/../batches": false,
	"/orders/50%25": false, "/orders/a%20b": false, "/orders//42": false, "*": false, "x:/batch": true,
}

// TestBatchPath: a client's request that some app could take for one of the batch path does
// not reach the app.
func TestBatchPath(t *testing.T) {
	b := ownPath{"batch"}
	for target, want := range batchPaths {
		if got := b.owns(target); got != want {
			t.Errorf("%s is taken for /batch: %v, want %v", target, got, want)
		}
	}
	two := ownPath{"api", "batch"}
	for target, want := range map[string]bool{"/api/batch": true, "/API/x/../Batch": true, "/api//batch": true, "/x/../api;y/batch": true, "/api": false, "/batch": false, "/api/v1/batch": false} {
		if got := two.owns(target); got != want {
			t.Errorf("%s is taken for /api/batch: %v, want %v", target, got, want)
		}
	}
}

// TestBatchPathReadings puts targets together of what apps read differently, and sees that
// none which an app takes for the batch path gets through.
func TestBatchPathReadings(t *testing.T) {
	pieces := []string{"/", "/", "/", "batch", "batch", "BATCH", "b%61tch", "x", "..", ".", ";", ";y", "%2f", "%2F", "%2e", "%5c", `\\`, "%25", "2f", "62atch", "?", "#", "%3b", "%3f", ".json", "%20", "index.php", ":", "%"}
	b := ownPath{"batch"}
	rng := rand.New(rand.NewPCG(1, 2))
	taken := 0
	for range 15_000 {
		var target strings.Builder
		target.WriteString("/")
		for range 1 + rng.IntN(7) {
			target.WriteString(pieces[rng.IntN(len(pieces))])
		}
		taken += checkReadings(t, b, target.String())
	}
	if taken < 500 {
		t.Errorf("apps took %d targets for the batch path, want more", taken)
	}
}

// FuzzBatchPath looks for such targets among all.
func FuzzBatchPath(f *testing.F) {
	for target := range batchPaths {
		f.Add(target)
	}
	b := ownPath{"batch"}
	f.Fuzz(func(t *testing.T, target string) { checkReadings(t, b, target) })
}

// checkReadings returns how many apps take target for the batch path.
func checkReadings(t *testing.T, b ownPath, target string) (taken int) {
	own := b.owns(target)
	for app, reads := range readings {
		if got := reads(target); strings.TrimSuffix(got, "/") == "/batch" {
			if taken++; !own {
				t.Errorf("%s takes %q for %q", app, target, got)
			}
		}
	}
	return taken
}
