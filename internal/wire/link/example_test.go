package link_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/keyway-go/keyway/internal/wire/link"
)

// A worker serves an http.Handler to its routers and refuses what is not its
// own.
func Example() {
	orders := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "order %s", r.URL.Query().Get("id"))
	})
	worker := &link.Server{Handler: link.HandlerFunc(func(w *link.ResponseWriter, r *link.ServerRequest) {
		if r.Key != "4711" {
			w.Refuse(&link.RefusedError{Reason: link.NotOwner, Owner: "w2", Addr: "10.0.0.2:8080", Epoch: 8})
			return
		}
		link.ServeHTTP(r.Context(), w, r, r.Fields.HeaderFor(0), orders)
	})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go worker.Serve(ln)
	defer worker.Close()

	router := &link.Client{Addr: ln.Addr().String()}
	defer router.Close()
	for _, id := range []string{"4711", "42"} {
		resp, err := router.Do(context.Background(), &link.Request{Method: "GET", Target: "/orders?id=" + id, Host: "shop", Key: id})
		if err != nil {
			fmt.Println(err)
			fmt.Println("may be sent elsewhere:", errors.Is(err, link.ErrNotStarted))
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(resp.Status, string(body))
	}
	// Output:
	// 200 order 4711
	// link: refused: not-owner, owner w2 at 10.0.0.2:8080, epoch 8
	// may be sent elsewhere: true
}
