package router_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// crossing says of a field on which of four roads it passes.
type crossing struct {
	name                                  string
	request, trailer, answer, answerTrail bool
	refused                               bool // by HTTP/2, in requests
	last                                  bool // is sent in trailers only
}

// crossings is the rule of what crosses, on every way in and out. X-Key is where
// the key is.
var crossings = []crossing{
	{name: "X-Any", request: true, trailer: true, answer: true, answerTrail: true},
	{name: "Cache-Control", request: true, answer: true, refused: true},
	{name: "Content-Language", request: true, answer: true},
	{name: "Content-Location", request: true, answer: true},
	{name: "Authorization", request: true, answer: true, refused: true},
	{name: "Set-Cookie", request: true, answer: true},
	{name: "If-Match", request: true, answer: true, refused: true},
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
	{name: "X-Key", answerTrail: true, last: true},
	{name: "X_Key", answerTrail: true, last: true},
	{name: "Forwarded", last: true},
	{name: "X-Forwarded-For", last: true},
	{name: "Baggage", last: true},
	{name: "Location", last: true},
	{name: "Content-Type", last: true, refused: true},
	{name: "Cookie", last: true, refused: true},
	{name: "Host", last: true, refused: true},
	{name: "Expect", last: true, refused: true},
	{name: "Connection", last: true, refused: true},
	{name: "Upgrade", last: true, refused: true},
}

// What crosses from client to app and back is the same on every way in and out,
// trailers that were not announced included.
func TestCrossings(t *testing.T) {
	var names []string
	for _, c := range crossings {
		names = append(names, c.name)
	}
	app := func(rw http.ResponseWriter, r *http.Request) {
		h := rw.Header()
		prefix := ""
		switch {
		case r.Method == "GET":
			for _, c := range crossings {
				if !c.last {
					h.Set(c.name, "answer")
				}
			}
		case r.URL.RawQuery == "":
			h.Set("Trailer", strings.Join(names, ", "))
		default:
			prefix = http.TrailerPrefix
		}
		body, err := io.ReadAll(r.Body)
		fmt.Fprint(rw, string(body), err, ";")
		for _, name := range names {
			name = http.CanonicalHeaderKey(name)
			values := r.Trailer[name]
			if r.Method == "GET" {
				values = r.Header[name]
			}
			fmt.Fprintf(rw, "%s=%s;", name, strings.Join(values, ","))
		}
		if r.Method == "POST" {
			http.NewResponseController(rw).Flush()
			for _, name := range names {
				h.Set(prefix+name, "answer")
			}
		}
	}
	for _, e := range entrances(t, app, nil) {
		t.Run(e.name, func(t *testing.T) {
			var head, tail, announced []string
			for _, c := range crossings {
				if e.http2 && c.refused {
					continue
				}
				if !c.last {
					head = append(head, c.name+": sent")
				}
				tail, announced = append(tail, c.name+": sent"), append(announced, c.name)
			}
			got := e.send(t, "GET", "/", head, "")
			gotTail := e.upload(t, "/", strings.Join(announced, ", "), tail)
			if !e.http2 { // which does not know others than those announced
				tail = append(tail, "Content-Length: 99", "Transfer-Encoding: sent", "Trailer: sent")
			}
			unannounced := e.upload(t, "/?unannounced", "X-Any", tail)
			for _, c := range crossings {
				name := http.CanonicalHeaderKey(c.name)
				sent := func(in string) bool { return strings.Contains(in, ";"+name+"=sent;") }
				for road, cell := range map[string]struct {
					got, want bool
					in        string
				}{
					"the request's head":           {sent(got), c.request, got},
					"the request's trailer":        {sent(gotTail), c.trailer, gotTail},
					"the request's second trailer": {sent(unannounced), c.trailer, unannounced},
					"the answer's head":            {answered(e, got, name), c.answer, got},
					"the answer's trailer":         {answered(e, gotTail, name), c.answerTrail, gotTail},
					"the answer's second trailer":  {answered(e, unannounced, name), c.answerTrail, unannounced},
				} {
					if cell.want = cell.want && (!strings.HasPrefix(road, "the request") || !e.http2 || !c.refused); cell.got != cell.want {
						t.Errorf("%s in %s: crosses %v, want %v: %s", c.name, road, cell.got, cell.want, cell.in)
					}
				}
			}
			for _, in := range []string{gotTail, unannounced} {
				if !strings.Contains(in, "body<nil>;") {
					t.Errorf("the app's view of the body: %s", in)
				}
			}
		})
	}
}

// answered reports whether what e has returned has the app's field in it.
func answered(e entrance, got, name string) bool {
	if e.http2 {
		return strings.Contains(got, "\n"+strings.ToLower(name)+": answer")
	}
	return strings.Contains(got, "["+name+":[answer]") || strings.Contains(got, " "+name+":[answer]")
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
