package http1

import (
	"bufio"
	"net"
	"net/http"
	"testing"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// serve lets a net/http server answer a request and returns the status.
func serve(t *testing.T, request []byte) int {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})}
	defer s.Close()
	ln := netutil.NewListener(near.LocalAddr())
	go s.Serve(ln)
	ln.Put(far, nil, nil)
	go near.Write(request)
	resp, err := http.ReadResponse(bufio.NewReader(near), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
