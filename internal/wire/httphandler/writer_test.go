package httphandler_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/wire/httphandler"
)

// script is a stream that writes down what is sent.
type script struct {
	httphandler.Writer
	body    io.Reader
	trailer http.Header
	fields  []string
	said    []string
}

func (s *script) say(format string, args ...any) {
	slices.Sort(s.fields)
	s.said = append(s.said, strings.TrimSpace(fmt.Sprintf(format, args...)+" "+strings.Join(s.fields, " ")))
	s.fields = nil
}

func (s *script) ReadBody(p []byte) (int, error) { return s.body.Read(p) }
func (s *script) Trailer() http.Header           { return s.trailer }
func (s *script) AddField(name, value string)    { s.fields = append(s.fields, name+":"+value) }
func (s *script) SendInterim(status int)         { s.say("%d", status) }
func (s *script) SendBody(p []byte) error        { s.say("%d bytes", len(p)); return nil }
func (s *script) SendPending() error             { s.say("flush"); return nil }
func (s *script) SendEnd()                       { s.say("end") }
func (s *script) Abort(err error)                { s.say("abort") }

func (s *script) SendHead(status int, length int64, body []byte, end bool) error {
	s.say("%d, length %d, %d bytes, end %v", status, length, len(body), end)
	return nil
}

// What differs between the versions of HTTP, and what a net/http client does not
// show. The rest of what a handler may do is tested over the link, beside net/http.
func TestWriter(t *testing.T) {
	text := func(w http.ResponseWriter) { io.WriteString(w, "text") }
	lateTrailer := func(w http.ResponseWriter) {
		text(w)
		w.Header().Set(http.TrailerPrefix+"Sum", "1")
	}
	declared := func(w http.ResponseWriter) {
		w.Header().Set("Trailer", "Sum, Content-Length")
		w.Header()["Content-Type"] = nil
		text(w)
		w.Header().Set("Sum", "1")
	}
	sized := func(length string, h func(http.ResponseWriter)) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", length)
			h(w)
		}
	}
	const typed = " Content-Type:text/plain; charset=utf-8"
	for name, tt := range map[string]struct {
		method  string
		major   int
		handler func(http.ResponseWriter)
		want    string
	}{
		"text":                          {"GET", 1, text, "200, length 4, 4 bytes, end true" + typed + "; end"},
		"HEAD":                          {"HEAD", 2, text, "200, length 4, 0 bytes, end true" + typed + "; end"},
		"HEAD, nothing written":         {"HEAD", 1, func(http.ResponseWriter) {}, "200, length -1, 0 bytes, end true; end"},
		"late trailer":                  {"GET", 1, lateTrailer, "200, length 4, 4 bytes, end true" + typed + "; end"},
		"late trailer, HTTP/2":          {"GET", 2, lateTrailer, "200, length -1, 4 bytes, end false" + typed + "; end Sum:1"},
		"declared":                      {"GET", 1, declared, "200, length -1, 4 bytes, end false Trailer:Sum, Content-Length; end Sum:1"},
		"declared, with length":         {"GET", 1, sized("4", declared), "200, length 4, 4 bytes, end false Trailer:Sum, Content-Length; end"},
		"declared, with length, HTTP/2": {"GET", 2, sized("4", declared), "200, length 4, 4 bytes, end false Trailer:Sum, Content-Length; end Sum:1"},
		"too short":                     {"GET", 2, sized("5", text), "200, length 5, 4 bytes, end false" + typed + "; abort"},
		"too long":                      {"GET", 2, sized("3", text), "200, length 3, 0 bytes, end false; abort"},
		"bad length":                    {"GET", 2, sized("x", text), "200, length 4, 4 bytes, end true" + typed + "; end"},
		"interim": {"GET", 2, func(w http.ResponseWriter) {
			w.Header().Set("Link", "a")
			w.Header().Set("Trailer", "Sum")
			w.WriteHeader(100)
			w.WriteHeader(103)
			w.Header().Del("Trailer")
			w.WriteHeader(204)
		}, "103 Link:a; 204, length -1, 0 bytes, end true Link:a; end"},
		"flush": {"GET", 2, func(w http.ResponseWriter) {
			w.(http.Flusher).Flush()
			text(w)
		}, "200, length -1, 0 bytes, end false; flush; 4 bytes; end"},
		"101": {"GET", 1, func(w http.ResponseWriter) { w.WriteHeader(101) }, "abort"},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(script)
			s.Begin(s, &http.Request{Method: tt.method, ProtoMajor: tt.major}, false)
			tt.handler(s)
			s.Finish()
			if got := strings.Join(s.said, "; "); got != tt.want {
				t.Errorf("sent\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestRequestTrailer(t *testing.T) {
	for major, want := range map[int]string{1: "map[More:[2] Sum:[1]]", 2: "map[Sum:[1]]"} {
		s := &script{body: strings.NewReader("text"), trailer: http.Header{"Sum": {"1"}, "More": {"2"}}}
		r := &http.Request{Method: "PUT", ProtoMajor: major, Header: http.Header{"Trailer": {"sum, Content-Length"}}}
		s.Begin(s, r, true)
		if got := fmt.Sprint(r.Trailer, r.Header); got != "map[Sum:[]] map[]" {
			t.Errorf("announced as %s", got)
		}
		if b, err := io.ReadAll(r.Body); string(b) != "text" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		if got := fmt.Sprint(r.Trailer); got != want {
			t.Errorf("HTTP/%d: trailers %s, want %s", major, got, want)
		}
		s.Finish()
		if _, err := r.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("after the handler: %v", err)
		}
	}
}
