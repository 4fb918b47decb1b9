package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// outcome is what a client sees of an answer.
type outcome struct {
	status  int
	header  string
	body    string
	failed  bool // the answer did not come to its end
	trailer string
}

func (o outcome) String() string {
	return fmt.Sprintf("%d\n%s%d bytes: %.500s, failed %v\n%s", o.status, o.header, len(o.body), o.body, o.failed, o.trailer)
}

// show renders a header in a fixed order, without what a server or the
// connection adds.
func show(h http.Header) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h)) {
		switch name {
		case "Date", "Connection", "Keep-Alive", "Upgrade":
		default:
			fmt.Fprintf(&b, "%s: %q\n", name, h[name])
		}
	}
	return b.String()
}

// handlers are run by a net/http server and over the link; what clients see
// must be equal. Each writes what it saw of the request, too.
var handlers = map[string]http.HandlerFunc{
	"nothing": func(w http.ResponseWriter, r *http.Request) {},
	"text":    func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") },
	"html":    func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>hello") },
	"not sniffed": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-mine")
		io.WriteString(w, "<html>hello")
	},
	"no type": func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		io.WriteString(w, "<html>hello")
	},
	"encoded": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		io.WriteString(w, "<html>hello")
	},
	"chunked by hand": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Transfer-Encoding", "chunked")
		io.WriteString(w, "<html>hello")
	},
	"identity": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Transfer-Encoding", "identity")
		io.WriteString(w, "hello")
	},
	"status": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X", "before")
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X", "after")
		w.WriteHeader(500)
		io.WriteString(w, "short and stout")
	},
	"header after write": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X", "before")
		io.WriteString(w, "hello")
		w.Header().Set("X", "after")
		w.Header().Set("Y", "after")
	},
	"own 421":   func(w http.ResponseWriter, r *http.Request) { http.Error(w, "not mine", 421) },
	"not found": http.NotFound,
	"redirect": func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/else?where=x", http.StatusTemporaryRedirect)
	},
	"204": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204); bodyNotAllowed(w) },
	"204 length": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(204)
	},
	"304": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"1"`)
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(304)
		bodyNotAllowed(w)
	},
	"early hints": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(103)
		io.WriteString(w, "hello")
	},
	"flush": func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "<html>one")
		w.(http.Flusher).Flush()
		io.WriteString(w, "two")
	},
	"flush first": func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			panic(err)
		}
		w.Header().Set("X", "late")
		io.WriteString(w, "<html>one")
	},
	"length": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5")
		io.WriteString(w, "hello")
	},
	"length too short": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "4")
		io.WriteString(w, "hell")
		if _, err := io.WriteString(w, "o"); !errors.Is(err, http.ErrContentLength) {
			panic(err)
		}
	},
	"length too long": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "9")
		io.WriteString(w, "hello")
	},
	"declared trailers": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Sum, unset")
		w.Header().Add("Trailer", "More")
		io.WriteString(w, "hello")
		w.Header().Set("Sum", "17")
		w.Header().Set("More", "x")
		w.Header().Add("More", "y")
		w.Header().Set("Undeclared", "z")
	},
	"prefixed trailers": func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Repeat("hello", 1000))
		w.Header().Set(http.TrailerPrefix+"Sum", "17")
	},
	"prefixed trailers, flushed": func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+"Sum", "17")
	},
	"prefixed trailers, too late": func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello")
		w.Header().Set(http.TrailerPrefix+"Sum", "17")
	},
	"odd headers": func(w http.ResponseWriter, r *http.Request) {
		w.Header()["x-lower"] = []string{" padded\t", "two\r\nlines"}
		w.Header()["no token"] = []string{"x"}
		w.Header()["Empty"] = []string{""}
		w.Header()["None"] = nil
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Add("Set-Cookie", "c=d")
	},
	"panic":            func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
	"panic after text": func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello"); panic(http.ErrAbortHandler) },
	"panic after flush": func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	},
	"request": func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %q %s %s %s %d %v %s %s\n", r.Method, r.URL, r.RequestURI, r.URL.Path, r.URL.RawQuery, r.Host, r.ContentLength, r.TransferEncoding, r.Proto, show(r.Header))
		fmt.Fprintf(w, "%s", show(r.Trailer))
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %q %v\n%s", len(b), b[:min(len(b), 100)], err, show(r.Trailer))
		n, err := r.Body.Read(make([]byte, 1))
		fmt.Fprintln(w, n, err)
		r.Body.Close()
		_, err = r.Body.Read(make([]byte, 1))
		fmt.Fprintln(w, err)
		fmt.Fprintln(w, r.Context().Err(), r.RemoteAddr != "")
	},
	"file": func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "a.html", time.Unix(1e9, 0), strings.NewReader(strings.Repeat("<p>", 3000)))
	},
	"timeout handler": http.TimeoutHandler(http.NotFoundHandler(), time.Minute, "").ServeHTTP,
	"copy":            func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) },
	"body unread":     func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(201) },
}

func init() {
	for _, n := range []int{1, 511, 512, 513, 2047, 2048, 2049, 4095, 4096, 4097, 10000, 100000, 1 << 20} {
		handlers[fmt.Sprintf("%d at once", n)] = func(w http.ResponseWriter, r *http.Request) {
			w.Write(bytes.Repeat([]byte("x"), n))
		}
		handlers[fmt.Sprintf("%d in pieces", n)] = func(w http.ResponseWriter, r *http.Request) {
			for left := n; left > 0; left -= 100 {
				io.WriteString(w, strings.Repeat("x", min(left, 100)))
			}
		}
		handlers[fmt.Sprintf("%d copied", n)] = func(w http.ResponseWriter, r *http.Request) {
			io.Copy(w, iotest.HalfReader(strings.NewReader(strings.Repeat("x", n))))
		}
	}
}

func bodyNotAllowed(w http.ResponseWriter) {
	if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
		panic(err)
	}
}

// requests are what each of the handlers is asked.
var requests = map[string]func(url string) *http.Request{
	"get":  func(url string) *http.Request { return newRequest("GET", url+"/a%20b/c?d=e&f=%31", nil) },
	"head": func(url string) *http.Request { return newRequest("HEAD", url, nil) },
	"empty post": func(url string) *http.Request {
		return newRequest("POST", url, nil)
	},
	"post": func(url string) *http.Request { return newRequest("POST", url+"/x", strings.NewReader("hello")) },
	"large post": func(url string) *http.Request {
		return newRequest("PUT", url+"/x", strings.NewReader(strings.Repeat("hello", 50000)))
	},
	"chunked post": func(url string) *http.Request {
		return newRequest("PATCH", url, io.MultiReader(strings.NewReader("one"), strings.NewReader("two")))
	},
	"trailers": func(url string) *http.Request {
		r := newRequest("POST", url, nil)
		r.Trailer = http.Header{"Sum": nil}
		r.Body = io.NopCloser(&atEOF{strings.NewReader("hello"), func() { r.Trailer.Set("Sum", "17") }})
		r.ContentLength = -1
		return r
	},
	"range": func(url string) *http.Request {
		r := newRequest("GET", url, nil)
		r.Header.Set("Range", "bytes=5-4000")
		return r
	},
	"if modified": func(url string) *http.Request {
		r := newRequest("GET", url, nil)
		r.Header.Set("If-Modified-Since", "Mon, 02 Jan 2006 15:04:05 GMT")
		return r
	},
	"odd headers": func(url string) *http.Request {
		r := newRequest("DELETE", url, nil)
		r.Header["x-lower"] = []string{"a", "b"}
		r.Header.Set("Te", "trailers")
		r.Header.Set("Cookie", "a=b; c=d")
		return r
	},
}

// atEOF calls f when r has come to its end.
type atEOF struct {
	r io.Reader
	f func()
}

func (a *atEOF) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if err == io.EOF {
		a.f()
	}
	return n, err
}

func newRequest(method, url string, body io.Reader) *http.Request {
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		panic(err)
	}
	r.Header.Set("User-Agent", "test")
	r.Host = "orders.example"
	return r
}

// TestLikeNetHTTP asks every handler everything, both ways.
func TestLikeNetHTTP(t *testing.T) {
	var handler atomic.Pointer[http.HandlerFunc]
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*handler.Load())(w, r) })
	plain := httptest.NewUnstartedServer(h)
	plain.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	plain.Start()
	defer plain.Close()
	upstream := httptest.NewServer(http.HandlerFunc(handlers["declared trailers"]))
	defer upstream.Close()
	handlers["reverse proxy"] = reverseProxy(upstream.URL).ServeHTTP
	tr := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	c := serveTCP(t, HTTPHandler(h))
	for _, name := range slices.Sorted(maps.Keys(handlers)) {
		for ask, request := range requests {
			h := handlers[name]
			handler.Store(&h)
			over := overLink(t.Context(), c, request(plain.URL))
			direct := overHTTP(tr, request(plain.URL))
			if over.failed && direct.failed {
				continue // how much came before the failure is a matter of buffers
			}
			if ask == "large post" && !strings.Contains("request copy", name) {
				continue // HTTP/1.1 loses answers to a body that is not read
			}
			switch {
			case strings.HasSuffix(name, "copied"):
				over.header = withoutLength(over.header) // the link sends one where net/http has none
				direct.header = withoutLength(direct.header)
			case name == "panic after flush" && ask == "head":
				direct.failed = true // net/http has nothing left to fail with
			}
			if over != direct {
				t.Errorf("%s, %s:\nover the link:\n%v\nover net/http:\n%v", name, ask, over, direct)
			}
		}
	}
}

// reverseProxy returns a handler as a sidecar has it.
func reverseProxy(to string) http.Handler {
	u, err := url.Parse(to)
	if err != nil {
		panic(err)
	}
	return &httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(u) },
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
}

// withoutLength drops the line with the Content-Length.
func withoutLength(header string) string {
	before, rest, ok := strings.Cut(header, "Content-Length")
	if !ok {
		return header
	}
	_, after, _ := strings.Cut(rest, "\n")
	return before + after
}

func overHTTP(tr *http.Transport, r *http.Request) outcome {
	resp, err := tr.RoundTrip(r)
	if err != nil {
		return outcome{failed: true}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return outcome{resp.StatusCode, show(resp.Header), string(b), err != nil, show(resp.Trailer)}
}

func overLink(ctx context.Context, c *Client, r *http.Request) outcome {
	req := requestOf(r)
	resp, err := c.Do(ctx, req)
	if err != nil {
		return outcome{failed: true}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	<-req.BodyDone()
	h := resp.Fields.Header()
	if h == nil {
		h = http.Header{}
	}
	var trailer http.Header
	if resp.ContentLength >= 0 {
		h.Set("Content-Length", fmt.Sprint(resp.ContentLength))
	} else if r.Method != "HEAD" {
		for name := range grammar.Items(h["Trailer"]) {
			if trailer == nil {
				trailer = http.Header{}
			}
			trailer[http.CanonicalHeaderKey(name)] = nil
		}
		h.Del("Trailer")
	}
	for name, values := range resp.Body.Trailer().Header() {
		if trailer == nil {
			trailer = http.Header{}
		}
		trailer[name] = values
	}
	return outcome{resp.Status, show(h), string(b), err != nil, show(trailer)}
}

// requestOf returns what is to be sent for r.
func requestOf(r *http.Request) *Request {
	req := &Request{
		Method:        r.Method,
		Target:        r.URL.RequestURI(),
		Host:          r.Host,
		Fields:        AppendHeader(make(Fields, 0, 512), r.Header),
		ContentLength: r.ContentLength,
	}
	if req.Host == "" {
		req.Host = r.URL.Host
	}
	if r.Body != nil && r.Body != http.NoBody {
		req.Body = r.Body
		if r.ContentLength == 0 {
			req.ContentLength = -1 // as http.NewRequest has it for a body of unknown length
		}
	}
	if len(r.Trailer) > 0 {
		for name := range r.Trailer {
			req.Fields = AppendField(req.Fields, "Trailer", name)
		}
		req.Trailer = func() Fields { return AppendHeader(nil, r.Trailer) }
	}
	return req
}

// TestRequestContextOverHTTP: the context of an http.Request ends with the
// client's, and when the handler has returned.
func TestRequestContextOverHTTP(t *testing.T) {
	var kept context.Context
	started, ended := make(chan struct{}), make(chan error)
	c := serveTCP(t, HTTPHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept = r.Context()
		if r.Context().Value(http.LocalAddrContextKey) == nil {
			t.Error("no local address")
		}
		if r.URL.Path == "/wait" {
			close(started)
			<-r.Context().Done()
			ended <- r.Context().Err()
		}
	})))
	if _, err := fetch(t.Context(), c, &Request{Method: "GET", Target: "/", Host: "h"}); err != nil {
		t.Fatal(err)
	}
	<-kept.Done()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	_, err := c.Do(ctx, &Request{Method: "GET", Target: "/wait", Host: "h"})
	want(t, err, context.Canceled)
	want(t, <-ended, context.Canceled)
}

// TestBadTarget: what no URL can be is answered as net/http does.
func TestBadTarget(t *testing.T) {
	c := serveTCP(t, HTTPHandler(http.NotFoundHandler()))
	for _, target := range []string{"%zz", "nopath", "/%"} {
		resp, err := c.Do(t.Context(), &Request{Method: "GET", Target: target, Host: "h"})
		if err != nil {
			t.Fatal(err)
		}
		if resp.Status != 400 {
			t.Errorf("%s: status %d", target, resp.Status)
		}
		resp.Body.Close()
	}
}

// The largest length that there is does not end the connection.
func TestLargestLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 1<<63 - 1
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			if r.ContentLength != most {
				t.Errorf("the server sees a length of %d", r.ContentLength)
			}
			w.WriteHead(http.StatusOK, most, nil)
		}, Config{})
		body, end := io.Pipe()
		defer end.Close()
		res, err := p.Do(t.Context(), &Request{Method: "HEAD", Host: "h", Target: "/", Body: body, ContentLength: most})
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.ContentLength != most {
			t.Errorf("the client sees a length of %d", res.ContentLength)
		}
	})
}
