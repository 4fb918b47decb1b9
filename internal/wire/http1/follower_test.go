package http1

import (
	"errors"
	"strings"
	"testing"
)

func TestFollower(t *testing.T) {
	const (
		get   = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
		sized = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na\nb"
		coded = "POST / HTTP/1.1\nHost: h\ntransfer-encoding: chunked\n\n3;x=y\r\na\nb\r\nA \r\n0123456789\r\n0\r\nX: y\r\n\r\n"
		both  = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\ncontent-length: 3\r\n"
		old   = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n"
	)
	tests := []struct {
		name, in string
		passes   string // of in
		bad      string // begins what does not pass; "" for nothing
	}{
		{name: "requests one after the other", passes: get + sized + coded + get + sized},
		{name: "empty lines after a POST", passes: sized + "\r\n" + coded + "\r\n\r\n" + coded + "\n" + both, bad: "\r\n"},
		{name: "both", passes: both, bad: "\r\n3\r\nabc\r\n0\r\n\r\n"},
		{name: "both, after others", passes: get + sized + coded + both, bad: "\r\n"},
		{name: "both, in a body", passes: "POST / HTTP/1.1\r\nContent-Length: 70\r\n\r\n" + both},
		{name: "HTTP/1.0", passes: get + old, bad: "\r\n0\r\n\r\n"},
		{name: "HTTP/1.0, sized", passes: strings.Replace(sized, "1.1", "1.0", 1) + get},
		{name: "equal lengths", passes: "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length:3\r\n\r\nabc" + get},
		{name: "lengths that differ", passes: "POST / HTTP/1.1\r\nContent-Length: 3\r\n", bad: "Content-Length: 4\r\n\r\nabc"},
		{name: "a length that is none", passes: "POST / HTTP/1.1\r\n", bad: "Content-Length: +3\r\n\r\nabc"},
		{name: "folded", passes: "POST / HTTP/1.1\r\nTransfer-Encoding:\r\n", bad: " chunked\r\nContent-Length: 3\r\n\r\n"},
		{name: "a chunk size that is none", passes: "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", bad: "0x3\r\nabc\r\n"},
		{name: "a negative chunk size", passes: "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", bad: "ffffffffffffffff\r\n"},
		{name: "a long chunk", passes: "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na", bad: "b\r\n"},
		{name: "HTTP/2", passes: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + both + "\r\n"},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 2, 7, 1 << 20} {
			var f Follower
			var passed strings.Builder
			var err error
			for rest := tt.passes + tt.bad; rest != "" && err == nil; {
				piece := rest[:min(size, len(rest))]
				rest = rest[len(piece):]
				var n int
				n, err = f.Check([]byte(piece))
				passed.WriteString(piece[:n])
			}
			if (err != nil) != (tt.bad != "") || err != nil && !errors.Is(err, errFraming) {
				t.Errorf("%s, in pieces of %d: %v", tt.name, size, err)
			}
			// Of a line in several pieces, the first have passed already.
			if !strings.HasPrefix(passed.String(), tt.passes) || len(passed.String()) > len(tt.passes) && !strings.HasPrefix(tt.bad, passed.String()[len(tt.passes):]) ||
				strings.Contains(passed.String()[len(tt.passes):], "\n") {
				t.Errorf("%s, in pieces of %d: %q passed", tt.name, size, passed.String())
			}
		}
	}
}

// However the bytes come, the verdict is the same, and stays.
func FuzzFollower(f *testing.F) {
	f.Add([]byte("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.0\r\nContent-Length: 1\r\n\r\n"), 3)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		size = max(1, size)
		var whole, pieces Follower
		_, err := whole.Check(in)
		var last error
		for rest := in; len(rest) > 0 && last == nil; {
			piece := rest[:min(size, len(rest))]
			rest = rest[len(piece):]
			_, last = pieces.Check(piece)
		}
		if (err == nil) != (last == nil) {
			t.Fatalf("%v at once, %v in pieces of %d", err, last, size)
		}
		if n, again := whole.Check([]byte("GET / HTTP/1.1\r\n")); err != nil && (again == nil || n != 0) {
			t.Fatalf("%d bytes pass after %v", n, err)
		}
	})
}
