package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

// simple is a request as a client sends it.
const simple = "POST /orders?id=4711 HTTP/1.1\r\nHost: shop.example:8080\r\nUser-Agent: test/1.0\r\nAccept: */*\r\n" +
	"Content-Length: 5\r\nX-Request-Id:0af7651916cd43dd8448eb211c80319c \t\r\nCookie: a=b; c=d\r\n\r\n"

func TestParse(t *testing.T) {
	var h Head
	b := []byte(simple + "hello")
	if v := h.Parse(b); v != Done {
		t.Fatal(v)
	}
	got := fmt.Sprintf("%s %s %s %d %v %d", h.Method, h.Target, h.Host, h.ContentLength, h.Close, h.Size)
	if want := fmt.Sprintf("POST /orders?id=4711 shop.example:8080 5 false %d", len(simple)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var fields []string
	for _, f := range h.Fields {
		fields = append(fields, string(f.Name)+"="+string(f.Value))
	}
	if want := []string{"User-Agent=test/1.0", "Accept=*/*", "X-Request-Id=0af7651916cd43dd8448eb211c80319c", "Cookie=a=b; c=d"}; !reflect.DeepEqual(fields, want) {
		t.Errorf("got %q, want %q", fields, want)
	}
	for n := range len(simple) {
		if v := h.Parse(b[:n]); v != More {
			t.Errorf("%v for the first %d bytes", v, n)
		}
	}
}

func TestVerdicts(t *testing.T) {
	const host = "Host: h\r\n"
	for request, want := range map[string]Verdict{
		"":                                   More,
		"GET / HTTP/1.1\r\n" + host:          More,
		"GET / HTTP/1.1\r\n" + host + "\r\n": Done,
		"GET / HTTP/1.1\r\nhOST:h\r\n\r\n":   Done,
		"GET //x/%41?%zz HTTP/1.1\r\n" + host + "\r\n":                 Done,
		"GET / HTTP/1.1\r\n" + host + "Connection: Keep-Alive\r\n\r\n": Done,
		"GET / HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n":      Done,
		"GET / HTTP/1.1\r\n" + host + "Empty:\r\n\r\n":                 Done,
		"GET / HTTP/1.1\r\n" + host + "Obs: \xff\r\n\r\n":              Done,
		"GET / HTTP/1.1\r\n" + host + "Tab: a\tb c d e f g h\r\n\r\n":  Done,
		"\x16\x03\x01":                                                                      HandOver,
		"\x00keyway\n":                                                                      HandOver,
		"\r\nGET / HTTP/1.1\r\n" + host + "\r\n":                                            HandOver,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                                  HandOver,
		"CONNECT h:443 HTTP/1.1\r\n" + host + "\r\n":                                        HandOver,
		"get / HTTP/1.1\r\n" + host + "\r\n":                                                HandOver,
		"BREW / HTTP/1.1\r\n" + host + "\r\n":                                               HandOver,
		"GET / HTTP/1.0\r\n" + host + "\r\n":                                                HandOver,
		"GET /\r\n":                                                                         HandOver,
		"GET  / HTTP/1.1\r\n" + host + "\r\n":                                               HandOver,
		"GET / x HTTP/1.1\r\n" + host + "\r\n":                                              HandOver,
		"GET http://h/ HTTP/1.1\r\n" + host + "\r\n":                                        HandOver,
		"OPTIONS * HTTP/1.1\r\n" + host + "\r\n":                                            HandOver,
		"GET /%zz HTTP/1.1\r\n" + host + "\r\n":                                             HandOver,
		"GET /%4 HTTP/1.1\r\n" + host + "\r\n":                                              HandOver,
		"GET /\x7f HTTP/1.1\r\n" + host + "\r\n":                                            HandOver,
		"GET / HTTP/1.1\n":                                                                  HandOver,
		"GET / HTTP/1.1\r\n\n":                                                              HandOver,
		"GET / HTTP/1.1\r\nHost: h\n":                                                       HandOver,
		"GET / HTTP/1.1\r\n\r\n":                                                            HandOver,
		"GET / HTTP/1.1\r\nHost:\r\n\r\n":                                                   HandOver,
		"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n":                                               HandOver,
		"GET / HTTP/1.1\r\n" + host + host + "\r\n":                                         HandOver,
		"GET / HTTP/1.1\r\n" + host + " folded\r\n\r\n":                                     HandOver,
		"GET / HTTP/1.1\r\n" + host + "A : b\r\n\r\n":                                       HandOver,
		"GET / HTTP/1.1\r\n" + host + ": b\r\n\r\n":                                         HandOver,
		"GET / HTTP/1.1\r\n" + host + "none\r\n\r\n":                                        HandOver,
		"GET / HTTP/1.1\r\n" + host + "A: b\x00\r\n\r\n":                                    HandOver,
		"GET / HTTP/1.1\r\n" + host + "A: 12345\rhidden: x\r\n\r\n":                         HandOver,
		"GET / HTTP/1.1\r\n" + host + "Connection: upgrade\r\n\r\n":                         HandOver,
		"GET / HTTP/1.1\r\n" + host + "Connection: close, x\r\n\r\n":                        HandOver,
		"GET / HTTP/1.1\r\n" + host + "Upgrade: websocket\r\n\r\n":                          HandOver,
		"PUT / HTTP/1.1\r\n" + host + "Expect: 100-continue\r\n\r\n":                        HandOver,
		"PUT / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n":                  HandOver,
		"PUT / HTTP/1.1\r\n" + host + "transfer-encoding: x\r\nContent-Length: 1\r\n\r\n":   HandOver,
		"PUT / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n":      HandOver,
		"PUT / HTTP/1.1\r\n" + host + "Content-Length: +1\r\n\r\n":                          HandOver,
		"PUT / HTTP/1.1\r\n" + host + "Content-Length: 1, 1\r\n\r\n":                        HandOver,
		"PUT / HTTP/1.1\r\n" + host + "Content-Length: 0x1\r\n\r\n":                         HandOver,
		"PUT / HTTP/1.1\r\n" + host + "Content-Length: \r\n\r\n":                            HandOver,
		"PUT / HTTP/1.1\r\n" + host + "Content-Length: 9223372036854775808\r\n\r\n":         HandOver,
		"PUT / HTTP/1.1\r\n" + host + "Trailer: x\r\n\r\n":                                  HandOver,
		"GET / HTTP/1.1\r\n" + host + "TE: trailers\r\n\r\n":                                HandOver,
		"GET / HTTP/1.1\r\n" + host + strings.Repeat("A: b\r\n", maxFields) + "\r\n":        Done,
		"GET / HTTP/1.1\r\n" + host + strings.Repeat("A: b\r\n", maxFields+1) + "\r\n":      HandOver,
		"GET / HTTP/1.1\r\n" + host + "HTTP2-Settings: x\r\nConnection: keep-alive\r\n\r\n": HandOver,
	} {
		var h Head
		if v := h.Parse([]byte(request)); v != want {
			t.Errorf("%q: %v, want %v", request, v, want)
		}
	}
}

// FuzzParse: what is simple means the same to net/http, and what was said of a
// part of the bytes holds for all of them.
func FuzzParse(f *testing.F) {
	f.Add([]byte(simple), uint16(40))
	f.Add([]byte("GET /a?b HTTP/1.1\r\nhost: h\r\nconnection: close\r\nA: b\r\na: c\r\n\r\n"), uint16(3))
	f.Add([]byte("DELETE /%41 HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 0\r\nA:\t\xff \r\n\r\n"), uint16(60))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		var h, part Head
		v := h.Parse(b)
		switch early := part.Parse(b[:min(int(cut), len(b))]); {
		case early == HandOver && v != HandOver, early == Done && (v != Done || h.Size != part.Size), early == More && part.Parse(b) != v:
			t.Fatalf("%v of a part, %v of all", early, v)
		}
		if v != Done {
			return
		}
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			t.Fatalf("net/http refuses it: %v", err)
		}
		compare(t, &h, r)
		rest, _ := io.ReadAll(r.Body)
		if want := b[h.Size:]; h.ContentLength > 0 && !bytes.Equal(rest, want[:min(len(want), int(h.ContentLength))]) {
			t.Errorf("the body begins elsewhere for net/http")
		}
	})
}

// compare looks at a request as both parsers have it.
func compare(t *testing.T, h *Head, r *http.Request) {
	if r.Proto != "HTTP/1.1" || r.Method != string(h.Method) || r.RequestURI != string(h.Target) || r.Host != string(h.Host) ||
		r.ContentLength != max(h.ContentLength, 0) || r.Close != h.Close || r.TransferEncoding != nil || r.Trailer != nil {
		t.Errorf("%s %s %s %d %v; net/http has %+v", h.Method, h.Target, h.Host, h.ContentLength, h.Close, r)
	}
	got := http.Header{}
	for _, f := range h.Fields {
		got.Add(string(f.Name), string(f.Value))
	}
	for _, name := range []string{"Host", "Connection"} {
		r.Header.Del(name)
	}
	if n := r.Header["Content-Length"]; (n != nil) != (h.ContentLength >= 0) {
		t.Errorf("content length %d; net/http has %q", h.ContentLength, n)
	}
	r.Header.Del("Content-Length")
	if !reflect.DeepEqual(got, r.Header) {
		t.Errorf("fields %q; net/http has %q", got, r.Header)
	}
}

// TestServerAgrees sends the simple requests among some odd ones to a net/http
// server, which checks more than http.ReadRequest.
func TestServerAgrees(t *testing.T) {
	for c := range 256 {
		for _, request := range []string{
			"GET / HTTP/1.1\r\nHost: a%cb\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nA%cb: c\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: h\r\nA: b%cc and so on\r\n\r\n", "GET /a%cb HTTP/1.1\r\nHost: h\r\n\r\n",
			"GET /?a%cb HTTP/1.1\r\nHost: h\r\n\r\n",
		} {
			b := fmt.Appendf(nil, strings.Replace(request, "%c", "%s", 1), []byte{byte(c)})
			var h Head
			if h.Parse(b) != Done {
				continue
			}
			if status := serve(t, b); status != 200 {
				t.Errorf("net/http answers %q with %d", b, status)
			}
		}
	}
}

func TestAppend(t *testing.T) {
	for name, tc := range map[string]struct {
		f    Framing
		want string
	}{
		"length":   {Framing{"GET", 200, 5, false}, "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 5\r\n\r\n"},
		"zero":     {Framing{"GET", 404, 0, true}, "HTTP/1.1 404 Not Found\r\nA: b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
		"chunked":  {Framing{"POST", 200, -1, false}, "HTTP/1.1 200 OK\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n"},
		"head":     {Framing{"HEAD", 200, 7, false}, "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 7\r\n\r\n"},
		"head, no": {Framing{"HEAD", 200, -1, false}, "HTTP/1.1 200 OK\r\nA: b\r\n\r\n"},
		"204":      {Framing{"GET", 204, 0, false}, "HTTP/1.1 204 No Content\r\nA: b\r\n\r\n"},
		"304":      {Framing{"GET", 304, 9, false}, "HTTP/1.1 304 Not Modified\r\nA: b\r\n\r\n"},
		"odd":      {Framing{"GET", 799, 0, false}, "HTTP/1.1 799 \r\nA: b\r\nContent-Length: 0\r\n\r\n"},
	} {
		b := AppendField(AppendStatus(nil, tc.f.Status), "A", "b")
		if got := string(AppendFraming(b, tc.f)); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestAppendFieldDrops(t *testing.T) {
	for _, name := range []string{"", "a b", "a:", "Content-Length", "transfer-encoding", "CONNECTION", "Keep-Alive", "Upgrade", "Proxy-Connection", "a\r\nb"} {
		if b := AppendField(nil, name, "x"); len(b) > 0 {
			t.Errorf("%q went out as %q", name, b)
		}
	}
	if got := string(AppendField(nil, "Trailer", "a\r\nb: c\x00d\te")); got != "Trailer: a  b: c d\te\r\n" {
		t.Errorf("got %q", got)
	}
}

// FuzzResponse: whatever the fields are, net/http reads the response that was
// meant.
func FuzzResponse(f *testing.F) {
	f.Add(uint16(200), "A", "b", []byte("hello"), true, "Sum", "17")
	f.Add(uint16(404), "Set-Cookie", "a=b\r\n\r\nc", []byte{}, false, "", "")
	f.Fuzz(func(t *testing.T, status uint16, name, value string, body []byte, chunked bool, trailer, tv string) {
		fr := Framing{Method: "GET", Status: 200 + int(status)%800, Length: int64(len(body))}
		if chunked {
			fr.Length = -1
		}
		b := AppendField(AppendStatus(nil, fr.Status), name, value)
		b = AppendFraming(b, fr)
		has, inChunks := fr.Body()
		switch {
		case inChunks:
			b = AppendEnd(AppendChunk(b, body), AppendField(nil, trailer, tv))
		case has:
			b = append(b, body...)
		}
		r := bufio.NewReader(bytes.NewReader(append(b, "next"...)))
		resp, err := http.ReadResponse(r, &http.Request{Method: fr.Method})
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != fr.Status || has && !bytes.Equal(got, body) || len(resp.Header) > 2 {
			t.Errorf("%q: read %d, %q, %v, %v", b, resp.StatusCode, got, resp.Header, err)
		}
		if next, err := io.ReadAll(r); string(next) != "next" {
			t.Errorf("%q: %q, %v follows", b, next, err)
		}
	})
}

func TestDate(t *testing.T) {
	var d Date
	now := time.Date(2026, 11, 20, 10, 0, 0, 5e8, time.FixedZone("x", 3600))
	for range 3 {
		want := now.UTC().Format(http.TimeFormat)
		if got := d.Text(now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		now = now.Add(400 * time.Millisecond)
	}
}

func BenchmarkParse(b *testing.B) {
	var h Head
	p := []byte(simple)
	b.ReportAllocs()
	for b.Loop() {
		if h.Parse(p) != Done {
			b.Fatal("not simple")
		}
	}
}

// parsers parse a head in pieces, a request's and an answer's.
func parsers() map[string]func([]byte) Verdict {
	return map[string]func([]byte) Verdict{"request": new(Head).Parse, "answer": new(ResponseHead).Parse}
}

// A head that comes in pieces gets the verdicts that it gets whole, at every split.
func TestPieces(t *testing.T) {
	for _, text := range []string{
		simple, simpleAnswer,
		"GET / HTTP/1.1\nHost: h\n\n", "GET / HTTP/1.1\r\nHost: h\n\n", "GET / HTTP/1.1\r\nHost: h\r\n\n", "GET / HTTP/1.1\r\nHost h\r\n\r\n", "\r\nGET",
		"HTTP/1.1 200 OK\r\nA: b\n\n", "HTTP/1.1 200 OK\n\n", "HTTP/1.2 200 OK\r\n\r\n", "HTTP/1.1 20x OK\r\n\r\n",
	} {
		for name, whole := range parsers() {
			want := whole([]byte(text))
			for i := range len(text) {
				for j := i; j < len(text); j++ {
					parse := parsers()[name]
					var early, got Verdict
					for _, n := range []int{i, j, len(text)} {
						if got = parse([]byte(text[:n])); got != More {
							break
						}
						early = max(early, parsers()[name]([]byte(text[:n])))
					}
					if got != want || early > More {
						t.Fatalf("%s %q split at %d and %d: %v, whole %v", name, text, i, j, got, want)
					}
				}
			}
		}
	}
}

// What has come of a head is not looked at again with each byte of another line.
func TestTrapHeadInBytesIsParsedByLines(t *testing.T) {
	for name, start := range map[string]string{"request": "GET / HTTP/1.1\r\nA: b", "answer": "HTTP/1.1 200 OK\r\nA: b"} {
		parse := parsers()[name]
		b := []byte(start)
		if v := parse(b); v != More {
			t.Fatal(v)
		}
		b[0] = 0
		for range 100 {
			if b = append(b, 'x'); parse(b) != More {
				t.Fatalf("%s: %d bytes were parsed again", name, len(b))
			}
		}
		if v := parse(append(b, "\r\n"...)); v != HandOver {
			t.Errorf("%s: %v at the end of a line", name, v)
		}
	}
}

// BenchmarkPieces parses a head of 59 kB that comes byte by byte.
func BenchmarkPieces(b *testing.B) {
	head := []byte("GET / HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("A: "+strings.Repeat("x", 600)+"\r\n", 97) + "\r\n")
	for b.Loop() {
		var h Head
		n := 1
		for h.Parse(head[:n]) == More {
			n++
		}
		if n != len(head) {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(head)), "ns/byte")
}

func (v Verdict) String() string { return [...]string{"none", "more", "done", "hand over"}[v] }
