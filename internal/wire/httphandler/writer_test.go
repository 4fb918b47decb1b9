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

func (s *script) SendHead(status int, length int64, body []byte) error {
	s.say("%d, length %d, %d bytes", status, length, len(body))
	return nil
}

// What a net/http client does not show. The rest of what a handler may do is tested over the link, beside net/http.
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
		handler func(http.ResponseWriter)
		want    string
	}{
		"text":                  {"GET", text, "200, length 4, 4 bytes" + typed + "; end"},
		"HEAD":                  {"HEAD", text, "200, length 4, 0 bytes" + typed + "; end"},
		"HEAD, nothing written": {"HEAD", func(http.ResponseWriter) {}, "200, length -1, 0 bytes; end"},
		"late trailer":          {"GET", lateTrailer, "200, length 4, 4 bytes" + typed + "; end"},
		"declared":              {"GET", declared, "200, length -1, 4 bytes Trailer:Sum, Content-Length; end Sum:1"},
		"declared, with length": {"GET", sized("4", declared), "200, length 4, 4 bytes Trailer:Sum, Content-Length; end"},
		"too short":             {"GET", sized("5", text), "200, length 5, 4 bytes" + typed + "; abort"},
		"too long":              {"GET", sized("3", text), "200, length 3, 0 bytes; abort"},
		"bad length":            {"GET", sized("x", text), "200, length 4, 4 bytes" + typed + "; end"},
		"interim": {"GET", func(w http.ResponseWriter) {
			w.Header().Set("Link", "a")
			w.Header().Set("Trailer", "Sum")
			w.WriteHeader(100)
			w.WriteHeader(103)
			w.Header().Del("Trailer")
			w.WriteHeader(204)
		}, "103 Link:a; 204, length -1, 0 bytes Link:a; end"},
		"flush": {"GET", func(w http.ResponseWriter) {
			w.(http.Flusher).Flush()
			text(w)
		}, "200, length -1, 0 bytes; flush; 4 bytes; end"},
		"101": {"GET", func(w http.ResponseWriter) { w.WriteHeader(101) }, "abort"},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(script)
			s.Begin(s, &http.Request{Method: tt.method}, false)
			tt.handler(s)
			s.Finish()
			if got := strings.Join(s.said, "; "); got != tt.want {
				t.Errorf("sent\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestRequestTrailer(t *testing.T) {
	s := &script{body: strings.NewReader("text"), trailer: http.Header{"Sum": {"1"}, "More": {"2"}}}
	r := &http.Request{Method: "PUT", Header: http.Header{"Trailer": {"sum, Content-Length"}}}
	s.Begin(s, r, true)
	if got := fmt.Sprint(r.Trailer, r.Header); got != "map[Sum:[]] map[]" {
		t.Errorf("announced as %s", got)
	}
	if b, err := io.ReadAll(r.Body); string(b) != "text" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if got := fmt.Sprint(r.Trailer); got != "map[More:[2] Sum:[1]]" {
		t.Errorf("trailers %s", got)
	}
	s.Finish()
	if _, err := r.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("after the handler: %v", err)
	}
}
