package router_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// crossing says of a field on which of four roads it passes.
type crossing struct {
	name                                  string
	request, trailer, answer, answerTrail bool
	refused                               bool // by HTTP/2, in requests
}

// crossings is the rule of what crosses, on every way in and out.
var crossings = []crossing{
	{name: "X-Any", request: true, trailer: true, answer: true, answerTrail: true},
	{name: "Cache-Control", request: true, answer: true, refused: true},
	{name: "Content-Language", request: true, answer: true},
	{name: "Authorization", request: true, answer: true, refused: true},
	{name: "Set-Cookie", request: true, answer: true},
	{name: "Keyway-Other"},
	{name: "Keyway_Token"},
	{name: "HTTP2-Settings"},
	{name: "Proxy-Authorization", refused: true},
	{name: "Proxy-Authenticate", refused: true},
	{name: "Proxy_Authorization"},
	{name: "Keep-Alive", refused: true},
	{name: "Proxy-Connection", refused: true},
	{name: "TE", refused: true},
	{name: "Content_Length"},
	{name: "Transfer.Encoding"},
	{name: "X_Forwarded_For"},
}

// What crosses from client to app and back is the same on every way in and out.
func TestCrossings(t *testing.T) {
	var names []string
	for _, c := range crossings {
		names = append(names, c.name)
	}
	app := func(rw http.ResponseWriter, r *http.Request) {
		h := rw.Header()
		for _, name := range names {
			h.Set(name, "answer")
		}
		if r.Method == "POST" {
			for _, name := range names {
				h.Del(name)
			}
			h.Set("Trailer", strings.Join(names, ", "))
		}
		io.Copy(io.Discard, r.Body)
		for _, name := range names {
			name = http.CanonicalHeaderKey(name)
			fmt.Fprintf(rw, "%s=%s;", name, strings.Join(append(r.Header[name], r.Trailer[name]...), ","))
		}
		if r.Method == "POST" {
			for _, name := range names {
				h.Set(name, "answer")
			}
		}
	}
	for _, e := range entrances(t, app, nil) {
		t.Run(e.name, func(t *testing.T) {
			var lines, announced []string
			for _, c := range crossings {
				if !e.http2 || !c.refused {
					lines, announced = append(lines, c.name+": sent"), append(announced, c.name)
				}
			}
			head := e.send(t, "GET", "/", lines, "")
			tail := e.upload(t, "/", strings.Join(announced, ", "), lines)
			for _, c := range crossings {
				name := http.CanonicalHeaderKey(c.name)
				sent := slices.Contains(announced, c.name)
				for road, cell := range map[string]struct {
					got, want bool
					in        string
				}{
					"the request's head":    {strings.Contains(head, name+"=sent;"), c.request && sent, head},
					"the request's trailer": {strings.Contains(tail, name+"=sent;"), c.trailer && sent, tail},
					"the answer's head":     {answered(e, head, name), c.answer, head},
					"the answer's trailer":  {answered(e, tail, name), c.answerTrail, tail},
				} {
					if cell.got != cell.want {
						t.Errorf("%s in %s: crosses %v, want %v", c.name, road, cell.got, cell.want)
					}
				}
			}
		})
	}
}

// answered reports whether what e has returned has the app's field in it.
func answered(e entrance, got, name string) bool {
	if e.http2 {
		return strings.Contains(got, strings.ToLower(name)+": answer")
	}
	return strings.Contains(got, "["+name+":[answer]") || strings.Contains(got, " "+name+":[answer]")
}
