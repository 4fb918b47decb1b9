package router_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// h2Head makes HEADERS of fields, which are given as name and value in turn.
func h2Head(end bool, fields ...string) string {
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	flags := byte(4)
	if end {
		flags |= 1
	}
	return kit.H2Frame(1, flags, 1, block.String())
}

func h2Data(end bool, p string) (frames string) {
	for ; len(p) > 16<<10; p = p[16<<10:] {
		frames += kit.H2Frame(0, 0, 1, p[:16<<10])
	}
	flags := byte(0)
	if end {
		flags = 1
	}
	return frames + kit.H2Frame(0, flags, 1, p)
}

// sendH2 sends frames of stream 1 and returns the answer in a form that can
// be compared.
func sendH2(t *testing.T, base, frames string) string {
	t.Helper()
	conn := kit.Must(kit.Connect(base))
	defer conn.Close()
	window := kit.H2Frame(8, 0, 0, "\x00\x7f\x00\x00")
	settings := kit.H2Frame(4, 0, 0, "\x00\x04\x00\x7f\x00\x00")
	go io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings+kit.H2Frame(4, 1, 0, "")+window+frames)
	in := bufio.NewReader(conn)
	var heads []string
	var body []byte
	dec := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		switch {
		case f.Name == "date":
			f.Value = "-"
		case f.Name == "content-length": // whether a short stream gets one is a matter of time
			return
		}
		heads = append(heads, f.Name+": "+f.Value)
	})
	for {
		var head [9]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return "no answer"
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(in, payload); err != nil {
			return "no answer"
		}
		switch head[3] {
		case 0:
			body = append(body, payload...)
		case 1:
			from := len(heads)
			if _, err := dec.Write(payload); err != nil {
				t.Fatal(err)
			}
			slices.Sort(heads[from:])
			heads = append(heads, "")
		case 3:
			return fmt.Sprintf("reset %d", payload[3])
		case 7:
			return fmt.Sprintf("goaway %d", payload[7])
		}
		if head[3] <= 1 && head[4]&1 != 0 {
			return fmt.Sprintf("%s\n%d bytes %.900q", strings.Join(heads, "\n"), len(body), body)
		}
	}
}

// HTTP/2 means the same as with net/http, or is refused.
func TestFrontAnswersHTTP2AsServerDoes(t *testing.T) {
	rt, _ := throughLink(t, echo)
	fast, _ := frontOf(t, rt)
	server := httptest.NewUnstartedServer(rt)
	server.Config = site.NetServer()
	server.Config.Handler = rt
	server.Start()
	t.Cleanup(server.Close)
	request := func(method string, more ...string) []string {
		return append([]string{":method", method, ":scheme", "http", ":authority", "shop.example", ":path", "/a?x=1", "x-key", "k"}, more...)
	}
	get := func(more ...string) string { return h2Head(true, request("GET", more...)...) }
	post := func(more ...string) string { return h2Head(false, request("POST", more...)...) }
	at := func(path string, more ...string) string {
		return h2Head(true, append([]string{":method", "GET", ":scheme", "http", ":authority", "h", ":path", path, "x-key", "k"}, more...)...)
	}
	const malformed = "reset 1"
	for name, tt := range map[string]struct {
		send     string
		stricter string // how the front answers where net/http is more lenient, or now so and now so
	}{
		"plain":               {get(), ""},
		"HEAD":                {h2Head(true, request("HEAD")...), ""},
		"OPTIONS":             {h2Head(true, request("OPTIONS")...), ""},
		"OPTIONS *":           {h2Head(true, ":method", "OPTIONS", ":scheme", "http", ":authority", "h", ":path", "*"), ""},
		"unknown method":      {h2Head(true, request("BREW")...), ""},
		"CONNECT":             {h2Head(true, ":method", "CONNECT", ":authority", "h:1", "x-key", "k"), ""},
		"CONNECT with path":   {h2Head(true, request("CONNECT")...), ""},
		"extended CONNECT":    {h2Head(true, request("CONNECT", ":protocol", "websocket")...), ""},
		"https":               {h2Head(true, ":method", "GET", ":scheme", "https", ":authority", "h", ":path", "/", "x-key", "k"), ""},
		"other scheme":        {h2Head(true, ":method", "GET", ":scheme", "ftp", ":authority", "h", ":path", "/", "x-key", "k"), ""},
		"Host alone":          {h2Head(true, ":method", "GET", ":scheme", "http", ":path", "/", "host", "h", "x-key", "k"), ""},
		"no host":             {h2Head(true, ":method", "GET", ":scheme", "http", ":path", "/", "x-key", "k"), malformed},
		"other Host":          {get("host", "other"), malformed},
		"bad authority":       {h2Head(true, ":method", "GET", ":scheme", "http", ":authority", "h/x?", ":path", "/", "x-key", "k"), malformed},
		"bad method":          {h2Head(true, ":method", "GET / HTTP/1.1\r\n", ":scheme", "http", ":authority", "h", ":path", "/", "x-key", "k"), ""},
		"method with a space": {h2Head(true, ":method", "GET /x", ":scheme", "http", ":authority", "h", ":path", "/", "x-key", "k"), malformed},
		"no path":             {h2Head(true, ":method", "GET", ":scheme", "http", ":authority", "h", "x-key", "k"), ""},
		"two paths":           {get(":path", "/b"), ""},
		"escapes":             {at("/a%20b/%2F?q=%zz"), ""},
		"bad escape":          {at("/a%zz"), ""},
		"odd path":            {at(`/a"b^c|d`), ""},
		"dots":                {at("//a/../b/./c//"), ""},
		"fragment":            {at("/a#b?c#d"), ""},
		"empty query":         {at("/a?"), ""},
		"UTF-8 path":          {at("/ü"), ""},
		"space in path":       {at("/a b"), malformed},
		"line break in path":  {at("/a\r\nX: y"), ""},
		"absolute path":       {at("http://other/"), malformed},
		"no slash":            {at("a"), ""},
		"body":                {post("content-length", "4") + h2Data(true, "body"), ""},
		"body without length": {post() + h2Data(true, "body"), ""},
		"empty body":          {post("content-length", "0") + h2Data(true, ""), ""},
		"no body":             {h2Head(true, request("POST")...), ""},
		"GET with body":       {h2Head(false, request("GET", "content-length", "4")...) + h2Data(true, "body"), ""},
		"64 KiB":              {post("content-length", "65535") + h2Data(true, strings.Repeat("x", 65535)), ""},
		"short body":          {post("content-length", "9") + h2Data(true, "body"), malformed},
		"long body":           {post("content-length", "2") + h2Data(true, "body"), malformed},
		"length without body": {h2Head(true, request("POST", "content-length", "4")...), malformed},
		"bad length":          {post("content-length", "+4") + h2Data(true, "body"), malformed},
		"two lengths":         {post("content-length", "4", "content-length", "5") + h2Data(true, "body"), malformed},
		"expect":              {post("content-length", "4", "expect", "100-continue") + h2Data(true, "body"), ""},
		"trailer":             {post("trailer", "x-sum") + h2Data(false, "body") + h2Head(true, "x-sum", "1"), ""},
		"trailer unannounced": {post() + h2Data(false, "body") + h2Head(true, "x-sum", "1"), ""},
		"trailer of framing":  {post("trailer", "content-length") + h2Data(false, "body") + h2Head(true, "content-length", "1"), malformed},
		"pseudo trailer":      {post() + h2Data(false, "body") + h2Head(true, ":path", "/b"), ""},
		"upper case":          {get("X-A", "b"), ""},
		"bad name":            {get("x a", "b"), ""},
		"bad value":           {get("x-a", "b\r\nkeyway-key: other"), ""},
		"space around value":  {get("x-a", " b "), malformed},
		"connection":          {get("connection", "close"), malformed},
		"transfer-encoding":   {post("transfer-encoding", "chunked") + h2Data(true, "0\r\n\r\n"), malformed},
		"upgrade":             {get("upgrade", "websocket"), malformed},
		"te":                  {get("te", "trailers"), ""},
		"te gzip":             {get("te", "gzip"), malformed},
		"cookies":             {get("cookie", "a=1", "cookie", "b=2"), "cookie"},
		"no key":              {h2Head(true, ":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/"), ""},
		"bad key":             {at("/", "x-key", "%ff"), ""},
		"two keys":            {get("x-key", "other"), ""},
		"same key twice":      {get("x-key", "k"), ""},
		"forged":              {get("keyway-key", "other", "keyway-token", "1"), ""},
		"forwarded":           {get("x-forwarded-for", "192.0.2.1", "x-forwarded-for", "192.0.2.2", "forwarded", "for=192.0.2.1"), ""},
		"proxy-authorization": {get("proxy-authorization", "x", "accept", "*/*"), ""},
		"large header":        {get("x-big", strings.Repeat("x", 15<<10)), ""},
		"status without body": {at("/?status=204"), ""},
		"not modified":        {at("/?status=304"), ""},
		"app's 421":           {at("/?status=421"), ""},
		"stream":              {at("/?stream=5"), ""},
		"trailer of answer":   {at("/?trailer=1"), ""},
		"large answer":        {at("/?size=1000000"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			want, got := sendH2(t, server.URL, tt.send), sendH2(t, fast, tt.send)
			switch {
			case tt.stricter == "cookie": // RFC 9113, section 8.2.3
				if want = strings.Replace(want, `[\"a=1\" \"b=2\"]`, `[\"a=1; b=2\"]`, 1); got != want {
					t.Errorf("the front answers\n%s\nthe server\n%s", got, want)
				}
			case tt.stricter != "":
				if got != tt.stricter {
					t.Errorf("the front answers\n%s\nthe server\n%s", got, want)
				}
			case got != want:
				t.Errorf("the front answers\n%s\nthe server\n%s", got, want)
			}
		})
	}
}

// throughLinkH2 is throughLink with a client of HTTP/2 at a [router.Server].
func throughLinkH2(t *testing.T, app http.HandlerFunc, change ...func(*router.Config)) (base string, rt *router.Router, client *http.Client) {
	t.Helper()
	rt, _ = throughLink(t, app, change...)
	base, _ = frontOf(t, rt)
	return base, rt, kit.Client(t, "HTTP/2")
}

func TestFrontCarriesHTTP2(t *testing.T) {
	base, rt, client := throughLinkH2(t, func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		rw.Header().Set("Trailer", "X-Sum")
		fmt.Fprintf(rw, "%s %d %v %s", r.Method, len(body), err, r.Trailer.Get("X-Check"))
		rw.Header().Set("X-Sum", "42")
	})
	for _, size := range []int{0, 1, 64 << 10, 64<<10 + 1, 5 << 20} {
		for _, known := range []bool{true, false} {
			var body io.Reader = strings.NewReader(strings.Repeat("x", size))
			if !known {
				body = io.MultiReader(body)
			}
			req := kit.Must(http.NewRequestWithContext(t.Context(), "PUT", base, body))
			req.Header.Set("X-Key", "k")
			check := ""
			if !known && size > 0 {
				check = "sum"
				req.Trailer = http.Header{"X-Check": {check}}
			}
			res, got := kit.Do(t, client, req)
			if want := fmt.Sprintf("PUT %d <nil> %s", size, check); got != want || res.ProtoMajor != 2 || res.Header.Get("Date") == "" || res.Trailer.Get("X-Sum") != "42" {
				t.Errorf("%d bytes, length known: %v: %q %v %v, want %q", size, known, got, res.Header, res.Trailer, want)
			}
		}
	}
	kit.Eventually(t, "no body is kept", func() bool { return rt.Stats().BodyBytes == 0 })
}

// Bodies that nobody has read to the end are not in use any more when the memory
// of their requests is used again.
func TestFrontAnswersBeforeTheBodyIsRead(t *testing.T) {
	rt, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, r.URL.Path) })
	base, _ := frontOf(t, rt)
	for _, proto := range []string{"HTTP/1.1", "HTTP/2"} {
		client := kit.Client(t, proto)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i := range 50 {
					req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", fmt.Sprint(base, "/", i), strings.NewReader(strings.Repeat("x", 40<<10))))
					req.Header.Set("X-Key", fmt.Sprint(i))
					if _, body := kit.Do(t, client, req); body != fmt.Sprint("/", i) {
						t.Errorf("%s: %q for request %d", proto, body, i)
					}
				}
			})
		}
		wg.Wait()
	}
}

func TestFrontBreaksHTTP2AnswersOff(t *testing.T) {
	base, _, client := throughLinkH2(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Write(make([]byte, 100<<10))
		http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	})
	for _, body := range []io.Reader{nil, io.MultiReader(strings.NewReader("of unknown length"))} {
		req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", base, body))
		req.Header.Set("X-Key", "k")
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(res.Body); err == nil {
			t.Error("a broken answer looks whole")
		}
		res.Body.Close()
	}
}

// A client of HTTP/2 gives up one of its requests, and then leaves.
func TestFrontHTTP2ClientLeaves(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	base, rt, client := throughLinkH2(t, func(rw http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	})
	for i := range int64(2) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			req := kit.Must(http.NewRequestWithContext(ctx, "GET", base, nil))
			req.Header.Set("X-Key", "k")
			if res, err := client.Do(req); err == nil {
				res.Body.Close()
				t.Error("there is an answer")
			}
		})
		<-entered
		cancel()
		<-left
		wg.Wait()
		kit.Eventually(t, "it is counted", func() bool { return rt.Stats().ClientGone == i+1 })
	}
	conn := kit.Must(kit.Connect(base))
	io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+kit.H2Frame(4, 0, 0, "")+h2Head(true, ":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/", "x-key", "k"))
	<-entered
	conn.Close()
	<-left
}

func TestFrontShutsHTTP2Down(t *testing.T) {
	kit.NoLeaks(t)
	entered, release := make(chan struct{}), make(chan struct{})
	rt, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		io.WriteString(rw, "done")
	})
	base, f := frontOf(t, rt)
	client := kit.Client(t, "HTTP/2")
	var wg sync.WaitGroup
	wg.Go(func() {
		req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", base, nil))
		req.Header.Set("X-Key", "k")
		if _, body := kit.Do(t, client, req); body != "done" {
			t.Errorf("the running request got %q", body)
		}
	})
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Shutdown(ctx); err == nil {
		t.Error("Shutdown with a request that runs")
	}
	close(release)
	if err := f.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// A preface may come in pieces.
func TestFrontHTTP2PrefaceInPieces(t *testing.T) {
	rt, _ := throughLink(t, echo)
	base, _ := frontOf(t, rt)
	conn := kit.Must(kit.Connect(base)).(*net.TCPConn)
	defer conn.Close()
	conn.SetNoDelay(true)
	for _, c := range []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + kit.H2Frame(4, 0, 0, "")) {
		conn.Write([]byte{c})
	}
	head := make([]byte, 9)
	if _, err := io.ReadFull(conn, head); err != nil || head[3] != 4 {
		t.Errorf("% x, %v", head, err)
	}
}
