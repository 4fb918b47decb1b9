package link

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
)

// A field that is known at the end of an answer goes with the head where nothing else would follow that, so
// that one frame is the answer, and behind the body otherwise; no room in the head is no reason to fail.
func TestAddLast(t *testing.T) {
	const name = "Took"
	tests := map[string]struct {
		method        string
		handler       HandlerFunc
		head, trailer bool // where the field is
	}{
		"nothing":      {"GET", func(w *ResponseWriter, r *ServerRequest) {}, true, false},
		"empty":        {"GET", func(w *ResponseWriter, r *ServerRequest) { w.WriteHead(200, 0, nil) }, true, false},
		"no content":   {"GET", func(w *ResponseWriter, r *ServerRequest) { w.WriteHead(204, -1, nil) }, true, false},
		"not modified": {"GET", func(w *ResponseWriter, r *ServerRequest) { w.WriteHead(304, 5, nil) }, true, false},
		"HEAD":         {"HEAD", func(w *ResponseWriter, r *ServerRequest) { text(w, "hello") }, true, false},
		"empty piece":  {"GET", func(w *ResponseWriter, r *ServerRequest) { w.Write(nil) }, true, false},
		"body":         {"GET", func(w *ResponseWriter, r *ServerRequest) { text(w, "hello") }, false, true},
		"large body":   {"GET", func(w *ResponseWriter, r *ServerRequest) { text(w, strings.Repeat("x", 10_000)) }, false, true},
		"flushed": {"GET", func(w *ResponseWriter, r *ServerRequest) {
			w.WriteHead(200, -1, nil)
			w.Flush()
		}, false, true},
		"HEAD flushed": {"HEAD", func(w *ResponseWriter, r *ServerRequest) {
			w.WriteHead(200, 5, nil)
			w.Flush()
		}, false, false},
		"trailers": {"GET", func(w *ResponseWriter, r *ServerRequest) {
			text(w, "hello")
			w.SetTrailer(AppendField(nil, "Sum", "1"))
		}, false, true},
		"no room": {"GET", func(w *ResponseWriter, r *ServerRequest) {
			w.WriteHead(204, -1, AppendField(nil, "A", strings.Repeat("x", 1<<10-10)))
		}, false, false},
		"refused": {"GET", func(w *ResponseWriter, r *ServerRequest) { w.Refuse(&RefusedError{Reason: Busy}) }, false, false},
		"aborted": {"GET", func(w *ResponseWriter, r *ServerRequest) { w.Abort() }, false, false},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
					tt.handler(w, r)
					w.AddLast(name, "17")
				}, Config{MaxHeaderBytes: 1 << 10})
				resp, err := p.Do(t.Context(), &Request{Method: tt.method, Target: "/", Host: "h"})
				if fails := title == "refused" || title == "aborted"; fails != (err != nil) {
					t.Fatalf("error %v", err)
				} else if fails {
					return
				}
				defer resp.Body.Close()
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					t.Error(err)
				}
				head, trailer := resp.Fields.Header()[name] != nil, resp.Body.Trailer().Header()[name] != nil
				if head != tt.head || trailer != tt.trailer {
					t.Errorf("in the head: %t, in the trailers: %t, want %t, %t", head, trailer, tt.head, tt.trailer)
				}
				if sum := resp.Body.Trailer().Header()["Sum"] != nil; sum != (title == "trailers") {
					t.Errorf("the handler's own trailer: %t", sum)
				}
			})
		})
	}
}
