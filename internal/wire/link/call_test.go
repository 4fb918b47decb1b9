package link

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
)

// A call between members reaches the server's Handler, but never an http.Handler;
// and only a Request that says so is one.
func TestCalls(t *testing.T) {
	for _, tt := range []struct {
		method  string
		call    bool
		handler http.HandlerFunc // nil for a Handler of the link's own
		status  int              // 0: not sent
	}{
		{method: ":acquire", call: true, status: 200},
		{method: ":acquire", call: false},
		{method: "GET", call: true},
		{method: "GET", call: false, status: 200},
		{method: ":", call: false},
		{method: ":acquire", call: true, handler: func(http.ResponseWriter, *http.Request) { t.Error("an http.Handler got a call") }, status: 400},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := HandlerFunc(func(w *ResponseWriter, r *ServerRequest) {
				if IsCall(r.Method) != tt.call {
					t.Errorf("%q is a call: %v", r.Method, IsCall(r.Method))
				}
				text(w, r.Method)
			})
			if tt.handler != nil {
				h = HTTPHandler(tt.handler).(HandlerFunc)
			}
			p := newPair(t, h, Config{})
			res, err := p.Do(t.Context(), &Request{Method: tt.method, Call: tt.call, Target: "/", Host: "h"})
			if tt.status == 0 {
				if !errors.Is(err, ErrNotStarted) || len(p.conns) > 0 {
					t.Errorf("%q, call %v: %v, %d connections; want it not to be sent", tt.method, tt.call, err, len(p.conns))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if body, err := io.ReadAll(res.Body); res.Status != tt.status || err != nil {
				t.Errorf("%q, call %v: %d %q %v, want %d", tt.method, tt.call, res.Status, body, err, tt.status)
			}
		})
	}
}

// A method of a call has one colon and a token behind it.
func TestMalformedCalls(t *testing.T) {
	for _, method := range []string{":", "::a", ":a b", "a:", ""} {
		sent, got := Request{Method: method, Target: "/"}, ServerRequest{}
		if _, err := got.decodeHead(sent.appendHead(nil, 0)); err == nil {
			t.Errorf("%q is taken", method)
		}
	}
}
