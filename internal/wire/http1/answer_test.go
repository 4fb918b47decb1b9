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
)

const simpleAnswer = "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 9\r\nKeep-Alive: timeout=5\r\nConnection: keep-alive\r\nSet-Cookie:a=b \r\nSet-Cookie: c\r\n\r\n"

func TestParseResponse(t *testing.T) {
	var h ResponseHead
	b := []byte(simpleAnswer + "not found")
	if v := h.Parse(b); v != Done {
		t.Fatal(v)
	}
	got := fmt.Sprintf("%d %d %v %v %d %s", h.Status, h.ContentLength, h.Chunked, h.Close, h.Size, h.Fields)
	want := fmt.Sprintf("404 9 false false %d [{Content-Type text/plain} {Set-Cookie a=b} {Set-Cookie c}]", len(simpleAnswer))
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for n := range len(simpleAnswer) {
		if v := h.Parse(b[:n]); v != More {
			t.Errorf("%v for the first %d bytes", v, n)
		}
	}
}

func TestResponseVerdicts(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for answer, want := range map[string]Verdict{
		"":                                 More,
		"HTTP":                             More,
		ok + "A: b\r\n":                    More,
		ok + "\r\n":                        Done,
		"HTTP/1.1 200\r\n\r\n":             Done,
		"HTTP/1.1 200 \r\n\r\n":            Done,
		"HTTP/1.1 103 Early Hints\r\n\r\n": Done,
		"HTTP/1.1 999 x\r\n\r\n":           Done,
		ok + "Connection: Close\r\n\r\n":   Done,
		ok + "Transfer-Encoding: chunked\r\n\r\n":               Done,
		ok + "transfer-encoding: Chunked\r\nTrailer: X\r\n\r\n": Done,
		"SSH":                       HandOver,
		"hello\r\n":                 HandOver,
		"HTTP/1.0 200 OK\r\n\r\n":   HandOver,
		"HTTP/1.1 20 OK\r\n\r\n":    HandOver,
		"HTTP/1.1 2000\r\n\r\n":     HandOver,
		"HTTP/1.1 099 x\r\n\r\n":    HandOver,
		"HTTP/1.1 +20 OK\r\n\r\n":   HandOver,
		"HTTP/1.1 200 \x00\r\n\r\n": HandOver,
		"HTTP/1.1 200 OK\n\n":       HandOver,
		ok + "A : b\r\n\r\n":        HandOver,
		ok + "A: b\r\n c\r\n\r\n":   HandOver,
		ok + "A: b\n\r\n":           HandOver,
		ok + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n":                   HandOver,
		ok + "Content-Length: -1\r\n\r\n":                                       HandOver,
		ok + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n":          HandOver,
		ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n": HandOver,
		ok + "Transfer-Encoding: gzip, chunked\r\n\r\n":                         HandOver,
		"HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n":                  HandOver,
		ok + "Connection: Upgrade\r\n\r\n":                                      HandOver,
		ok + "Upgrade: h2c\r\n\r\n":                                             HandOver,
		ok + "Pragma: no-cache\r\n\r\n":                                         HandOver,
		ok + strings.Repeat("A: b\r\n", maxFields+1) + "\r\n":                   HandOver,
	} {
		var h ResponseHead
		if v := h.Parse([]byte(answer)); v != want {
			t.Errorf("%q: %v, want %v", answer, v, want)
		}
	}
}

func TestChunked(t *testing.T) {
	tests := map[string]struct {
		in, data, rest string
		ended, bad     bool
	}{
		"two":          {in: "5\r\nhello\r\n1;a=b\r\n!\r\n0\r\n\r\nnext", data: "hello!", rest: "next", ended: true},
		"hex, zeros":   {in: "00A \r\n0123456789\r\n0\r\n\r\n", data: "0123456789", ended: true},
		"trailer":      {in: "0\r\nA: b\r\nC:d\r\n\r\n", ended: true},
		"not yet":      {in: "5\r\nhel", data: "hel"},
		"no end":       {in: "1\r\nx\r\n0\r\n", data: "x"},
		"no size":      {in: "\r\n", bad: true},
		"negative":     {in: "-1\r\n", bad: true},
		"0x":           {in: "0x1\r\n", bad: true},
		"space within": {in: "1 1\r\n", bad: true},
		"bare LF":      {in: "1\nx", bad: true},
		"LF at end":    {in: "1\r\nx\n", data: "x", bad: true},
		"longer":       {in: "1\r\nxy\r\n", data: "x", bad: true},
		"huge":         {in: "8000000000000000\r\n", bad: true},
		"17 digits":    {in: "00000000000000001\r\n", bad: true},
		"bad trailer":  {in: "0\r\nA b\r\n\r\n", bad: true},
		"LF trailer":   {in: "0\r\nA: b\n\r\n", bad: true},
		"long trailer": {in: "0\r\nA: " + strings.Repeat("b", maxTrailer) + "\r\n\r\n", bad: true},
		"long ext":     {in: "1;" + strings.Repeat("b", 2*maxExcess) + "\r\nx\r\n0\r\n\r\n", bad: true},
		"all ext":      {in: strings.Repeat("1;"+strings.Repeat("b", 100)+"\r\nx\r\n", 100), bad: true},
		"bytes":        {in: strings.Repeat("1\r\nx\r\n", 10_000) + "0\r\n\r\n", data: strings.Repeat("x", 10_000), ended: true},
	}
	for name, tt := range tests {
		for _, step := range []int{1, 7, len(tt.in)} {
			var c Chunked
			var data, rest []byte
			var err error
			in := []byte(tt.in)
			for len(in) > 0 && err == nil {
				n := min(step, len(in))
				var d, r []byte
				d, r, err = c.Decode(in[:n:n])
				data, rest, in = append(data, d...), append(rest, r...), in[n:]
			}
			bad := err != nil
			if bad != tt.bad || c.Ended() != tt.ended || name != "all ext" && string(data) != tt.data || string(rest) != tt.rest {
				t.Errorf("%s by %d: %.40q, rest %q, ended %v, %v", name, step, data, rest, c.Ended(), err)
			}
			if name == "trailer" && fmt.Sprintf("%s", c.Trailer()) != "[{A b} {C d}]" {
				t.Errorf("trailer %s", c.Trailer())
			}
		}
	}
}

// FuzzAnswer: what is simple means the same to net/http, body and trailers
// included, and what was said of a part of the bytes holds for all of them.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(simpleAnswer+"not found"), uint16(40))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nSum: 1\r\n\r\nrest"), uint16(70))
	f.Add([]byte("HTTP/1.1 200 \r\nA:\r\nconnection: close\r\n\r\nall that comes"), uint16(20))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		var h, part ResponseHead
		v := h.Parse(b)
		switch early := part.Parse(b[:min(int(cut), len(b))]); {
		case early == HandOver && v != HandOver, early == Done && (v != Done || h.Size != part.Size), early == More && part.Parse(b) != v:
			t.Fatalf("%v of a part, %v of all", early, v)
		}
		if v != Done {
			return
		}
		r, err := http.ReadResponse(bufio.NewReaderSize(bytes.NewReader(b), 64<<10), nil)
		if err != nil {
			t.Fatalf("net/http refuses it: %v", err)
		}
		want := http.Header{}
		for _, f := range h.Fields {
			want.Add(string(f.Name), string(f.Value))
		}
		announced := r.Trailer
		for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Content-Length"} {
			r.Header.Del(name)
		}
		if announced != nil {
			want.Del("Trailer")
		}
		length := h.ContentLength
		if h.Status == http.StatusNoContent || h.Status < 200 {
			length = r.ContentLength // there is no body, whatever it says
		}
		if r.StatusCode != h.Status || r.ContentLength != length || (r.TransferEncoding != nil) != h.Chunked || !reflect.DeepEqual(want, r.Header) {
			t.Errorf("%+v; net/http has %+v", h, r)
		}
		if h.Chunked {
			compareChunks(t, b[h.Size:], int(cut), r)
		}
	})
}

func compareChunks(t *testing.T, b []byte, cut int, r *http.Response) {
	var c Chunked
	cut = min(cut, len(b))
	first, rest, err := c.Decode(bytes.Clone(b[:cut]))
	var second []byte
	if err == nil {
		second, _, err = c.Decode(append(rest, b[cut:]...))
	}
	body, readErr := io.ReadAll(r.Body)
	if c.Ended() != (readErr == nil) && (c.Ended() || err == nil) {
		t.Fatalf("ended %v, %v; net/http: %v", c.Ended(), err, readErr)
	}
	if got := append(bytes.Clone(first), second...); c.Ended() && !bytes.Equal(got, body) {
		t.Errorf("%q; net/http has %q", got, body)
	}
	if !c.Ended() {
		return
	}
	for _, f := range c.Trailer() {
		if !strings.Contains(strings.Join(r.Trailer.Values(string(f.Name)), "\n"), string(f.Value)) {
			t.Errorf("trailer %s: %q; net/http has %v", f.Name, f.Value, r.Trailer)
		}
	}
}

func BenchmarkParseResponse(b *testing.B) {
	var h ResponseHead
	p := []byte(simpleAnswer)
	b.ReportAllocs()
	for b.Loop() {
		if h.Parse(p) != Done {
			b.Fatal("not simple")
		}
	}
}
