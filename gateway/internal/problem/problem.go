// Package problem has the answers of a router or a worker in place of an app's; table.go lists
// them. Their text names neither addresses nor parts of Keyway: details that a client does not need
// go to the log. A client that prefers JSON gets application/problem+json (RFC 9457), others text.
package problem

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// Problem is an answer of a router's or a worker's own.
type Problem struct {
	Kind       Kind
	Detail     string             // about this request; may be ""
	Keys       gateway.KeySources // where a key is looked for, if that is what is missing
	RetryAfter int                // seconds; 0 for none
	Holder     *Holder            // of the key, for who wanted it; nil where nobody is told
}

// Holder says who has a key.
type Holder struct {
	Key     string `json:"key"`
	Kind    string `json:"kind"`              // "lock" or "request"
	Holder  string `json:"holder"`            // what it calls itself, "" for a request; the one with the most left of those that read
	Readers int    `json:"readers,omitempty"` // how many have it together, for reading
	TTL     int64  `json:"ttl_ms"`            // until it loses the key unless it renews, in ms; 0 for a request
	Waiting int    `json:"waiting"`
}

// Of makes the answer of a kind.
func Of(k Kind) Problem {
	p := Problem{Kind: k}
	if table[k].retry() {
		p.RetryAfter = 1
	}
	return p
}

// With returns p with a detail about its request.
func (p Problem) With(detail string) Problem {
	p.Detail = detail
	return p
}

// OfKey returns the answer to a request without a usable key. err is the error of the key sources
// in.
func OfKey(err error, in gateway.KeySources) Problem {
	k, sentinel := BadKey, gateway.ErrBadKey
	if errors.Is(err, gateway.ErrNoKey) {
		k, sentinel = NoKey, gateway.ErrNoKey
	}
	p := Of(k).With(strings.TrimPrefix(strings.TrimPrefix(err.Error(), sentinel.Error()), ": "))
	p.Keys = in
	return p
}

// String returns the name of the kind.
func (k Kind) String() string { return table[k].name }

// Status returns the answer's status.
func (p Problem) Status() int { return table[p.Kind].status }

// String returns the answer as text.
func (p Problem) String() string {
	if p.Detail == "" {
		return table[p.Kind].title
	}
	return table[p.Kind].title + ": " + p.Detail
}

// Types of an answer's content.
const (
	textType = "text/plain; charset=utf-8"
	jsonType = "application/problem+json"
)

// document is the content of an answer in JSON (RFC 9457, section 3).
type document struct {
	Type       string   `json:"type"`
	Title      string   `json:"title"`
	Status     int      `json:"status"`
	Detail     string   `json:"detail,omitempty"`
	KeySources []string `json:"key_sources,omitempty"`
	RetryAfter int      `json:"retry_after,omitempty"` // seconds
	*Holder
}

// Body returns the answer's content and the type of it, for a request with these
// values of the field Accept.
func (p Problem) Body(accept []string) (contentType, body string) {
	if !prefersJSON(accept) {
		return textType, p.String() + "\n"
	}
	e := &table[p.Kind]
	d := document{Type: "urn:keyway:problem:" + e.name, Title: e.title, Status: e.status, Detail: p.Detail, RetryAfter: p.RetryAfter, Holder: p.Holder}
	for i := range p.Keys {
		d.KeySources = append(d.KeySources, p.Keys[i].String())
	}
	b, _ := json.Marshal(d) // strings and numbers have a form in JSON
	return jsonType, string(b) + "\n"
}

// Fields yields the fields of the answer's head, for content of that type.
func (p Problem) Fields(contentType string) func(yield func(name, value string) bool) {
	return func(yield func(name, value string) bool) {
		switch {
		case !yield("Content-Type", contentType), !yield("X-Content-Type-Options", "nosniff"):
		case p.Kind == Trace:
			yield("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		case p.RetryAfter > 0:
			yield("Retry-After", strconv.Itoa(p.RetryAfter))
		}
	}
}

// ServeJSON is ServeHTTP for a client that takes JSON, regardless of its Accept.
func (p Problem) ServeJSON(w http.ResponseWriter) { p.serve(w, []string{jsonType}) }

// ServeHTTP answers r; nothing may have been written to w before. Fields in w's header are kept
// unless they describe other content. net/http reads the rest of r's body before it answers,
// and ends the connection if that does not come in half a second.
func (p Problem) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second / 2)) // not every server has it
	}
	p.serve(w, r.Header["Accept"])
}

func (p Problem) serve(w http.ResponseWriter, accept []string) {
	contentType, body := p.Body(accept)
	h := w.Header()
	for _, name := range []string{"Content-Encoding", "Content-Length", "Etag", "Last-Modified", "Cache-Control"} {
		h.Del(name)
	}
	for name, value := range p.Fields(contentType) {
		h[name] = []string{value}
	}
	w.WriteHeader(p.Status())
	_, _ = w.Write([]byte(body)) // should it fail, there is nobody to tell
}

// prefersJSON reports whether a client that accepts this asks for JSON, and for
// text no more than for that (RFC 9110, section 12.5.1).
func prefersJSON(accept []string) bool {
	var json, text float64
	for item := range grammar.Items(accept) {
		kind, parameters, _ := mime.ParseMediaType(item)
		q := 1.0
		if text, ok := parameters["q"]; ok {
			if q, _ = strconv.ParseFloat(text, 64); !(q >= 0 && q <= 1) {
				q = 0
			}
		}
		switch kind {
		case jsonType, "application/json", "application/*":
			json = max(json, q)
		case "text/plain", "text/html", "text/*":
			text = max(text, q)
		}
	}
	return json > 0 && json >= text
}
