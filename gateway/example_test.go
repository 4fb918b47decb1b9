package gateway_test

import (
	"fmt"
	"net/http/httptest"

	"github.com/keyway-go/keyway/gateway"
)

func ExampleKeySources() {
	var sources gateway.KeySources
	for _, spec := range []string{"header:X-Order", "path:/orders/{key}"} {
		source, err := gateway.ParseKeySource(spec)
		if err != nil {
			fmt.Println(err)
			return
		}
		sources = append(sources, source)
	}
	for _, target := range []string{"/orders/42", "/orders/%34%32", "/carts/42"} {
		key, err := sources.Extract(httptest.NewRequest("GET", target, nil))
		fmt.Printf("%q %v\n", key, err)
	}
	// Output:
	// "42" <nil>
	// "42" <nil>
	// "" gateway: no key, or an empty one: send it in header:X-Order or path:/orders/{key}
}
