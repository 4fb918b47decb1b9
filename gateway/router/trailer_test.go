package router_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// trailerApp answers with the trailers that it gets, and with some of its own.
func trailerApp(rw http.ResponseWriter, r *http.Request) {
	h := rw.Header()
	h.Set("Trailer", "X-Answer, Set-Cookie, Keyway-Token")
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(rw, "%s %v", body, err)
	for _, name := range slices.Sorted(maps.Keys(r.Trailer)) {
		fmt.Fprintf(rw, " %s=%s", name, strings.Join(r.Trailer[name], ","))
	}
	fmt.Fprint(rw, ".")
	h.Set("X-Answer", "43")
	for _, name := range []string{"Set-Cookie", "Keyway-Token", http.TrailerPrefix + "Location", http.TrailerPrefix + "Keyway_Token", http.TrailerPrefix + "Content-Type"} {
		h.Set(name, "forbidden")
	}
}

// Trailers arrive on every way, in both directions, but for those that would
// change what has been decided before the body (RFC 9110, section 6.5.1).
func TestTrailers(t *testing.T) {
	anywhere := []string{"X-Sum: 42", "X-Key: forbidden", "X_Key: forbidden", "Keyway-Token: forbidden", "Keyway_Token: forbidden", "Set-Cookie: forbidden",
		"Forwarded: forbidden", "X-Forwarded-For: forbidden", "Baggage: forbidden", "HTTP2-Settings: forbidden", "Content-Location: forbidden"}
	http1 := append(slices.Clone(anywhere), "Authorization: forbidden", "Content-Type: forbidden", "If-Match: forbidden", "Cookie: forbidden",
		"Host: forbidden", "Proxy-Authorization: forbidden", "Te: forbidden", "Expect: forbidden", "Connection: forbidden", "Upgrade: forbidden")
	unannounced := []string{"Content-Length: 99", "Transfer-Encoding: forbidden", "Trailer: forbidden"}
	names := func(lines []string) string {
		var list []string
		for _, line := range lines {
			name, _, _ := strings.Cut(line, ":")
			list = append(list, name)
		}
		return strings.Join(list, ", ")
	}
	for _, e := range entrances(t, trailerApp, nil) {
		t.Run(e.name, func(t *testing.T) {
			var got string
			if e.http2 {
				got = e.upload(t, "/", names(anywhere), anywhere)
			} else {
				got = e.upload(t, "/", names(http1), append(http1, unannounced...))
			}
			if !strings.Contains(got, `"body <nil> X-Sum=42."`) || strings.Contains(got, "forbidden") {
				t.Errorf("%s", got)
			}
			if !e.http2 && !strings.Contains(got, "map[X-Answer:[43]]") || e.http2 && !strings.Contains(got, "x-answer: 43") {
				t.Errorf("the answer's trailers: %s", got)
			}
		})
	}
}

// An answer without a Content-Type gets none on its way.
func TestNoContentTypeIsGuessed(t *testing.T) {
	for _, e := range entrances(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header()["Content-Type"] = nil
		io.Copy(rw, r.Body)
		fmt.Fprint(rw, "<html>")
	}, nil) {
		t.Run(e.name, func(t *testing.T) {
			for _, got := range []string{e.send(t, "GET", "/", nil, ""), e.upload(t, "/", "X-Sum", []string{"X-Sum: 1"})} {
				if !strings.Contains(got, `<html>"`) || strings.Contains(strings.ToLower(got), "content-type") {
					t.Errorf("%s", got)
				}
			}
		})
	}
}
