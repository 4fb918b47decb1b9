package proxyheader

import (
	"bytes"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
)

// FuzzProxyHeader reads whatever peers send for a PROXY header.
func FuzzProxyHeader(f *testing.F) {
	f.Add([]byte("PROXY TCP4 192.0.2.1 198.51.100.1 1 2\r\nGET / HTTP/1.1\r\n"))
	f.Add([]byte("PROXY UNKNOWN\r\n"))
	f.Add([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc6\x33\x64\x01\x00\x01\x00\x02rest"))
	f.Add([]byte("\r\n\r\n\x00\r\nQUIT\n\x20\x00\xff\xff" + strings.Repeat("x", 1<<16)))
	f.Fuzz(func(t *testing.T, stream []byte) {
		in := bytes.NewReader(stream)
		client, read, err := Parse(in)
		if err != nil {
			return
		}
		if len(read) > MaxSize {
			t.Errorf("%d bytes were read behind the header, %d at most are kept", len(read), MaxSize)
		}
		rest, _ := io.ReadAll(in)
		if !bytes.HasSuffix(stream, append(read, rest...)) {
			t.Error("what stands behind the header is not what is left")
		}
		if client != nil {
			if _, err := netip.ParseAddrPort(client.String()); err != nil {
				t.Errorf("the client is %v", client)
			}
		}
	})
}

func TestProxyHeaderIsBounded(t *testing.T) {
	long := "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x20\x00" + strings.Repeat("x", 1<<13)
	in := strings.NewReader(long)
	if client, _, err := Parse(in); err == nil || len(long)-in.Len() > 2*MaxSize {
		t.Errorf("%v after %d bytes, %v", client, len(long)-in.Len(), err)
	}
	if client, read, err := Parse(iotest.OneByteReader(strings.NewReader("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc6\x33\x64\x01\x00\x01\x00\x02rest"))); err != nil || client.String() != "192.0.2.1:1" || len(read) != 0 {
		t.Errorf("in pieces: %v, %q, %v", client, read, err)
	}
	line := strings.NewReader("PROXY UNKNOWN " + strings.Repeat("x", 200))
	if _, _, err := Parse(iotest.OneByteReader(line)); err == nil || line.Len() != 214-maxLine {
		t.Errorf("version 1: %v, %d bytes were not read", err, line.Len())
	}
}
