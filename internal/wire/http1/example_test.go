package http1_test

import (
	"fmt"

	"github.com/keyway-go/keyway/internal/wire/http1"
)

// What is not a simple request is handed over to net/http.
func ExampleHead_Parse() {
	var h http1.Head
	fmt.Println(h.Parse([]byte("GET /orders HTTP/1.1\r\nHost: shop\r\nX-Ord")))
	fmt.Println(h.Parse([]byte("GET /orders HTTP/1.1\r\nHost: shop\r\nX-Order: 4711\r\n\r\n")))
	fmt.Printf("%s %s %s=%s\n", h.Method, h.Target, h.Fields[0].Name, h.Fields[0].Value)
	fmt.Println(h.Parse([]byte("GET /chat HTTP/1.1\r\nHost: shop\r\nUpgrade: websocket\r\n")))
	// Output:
	// more
	// done
	// GET /orders X-Order=4711
	// hand over
}
