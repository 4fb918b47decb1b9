package router_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/ring"
)

func ExampleExtractKey() {
	var sources []gateway.KeySource
	for _, spec := range []string{"header:X-Order", "path:/orders/{key}"} {
		source, err := gateway.ParseKeySource(spec)
		if err != nil {
			fmt.Println(err)
			return
		}
		sources = append(sources, source)
	}
	for _, target := range []string{"/orders/42", "/orders/%34%32", "/carts/42"} {
		key, err := gateway.ExtractKey(sources, httptest.NewRequest("GET", target, nil))
		fmt.Printf("%q %v\n", key, err)
	}
	// Output:
	// "42" <nil>
	// "42" <nil>
	// "" gateway: the request has no key: send it in header:X-Order or path:/orders/{key}
}

// fixed is a gateway.Members that never changes; a real one is gossip.Cluster.
type fixed struct{ view *ring.View }

func (f fixed) View() *ring.View                  { return f.view }
func (f fixed) Changed() <-chan struct{}          { return nil }
func (f fixed) Settings() ring.Settings           { return ring.Settings{} }
func (f fixed) Announce(func(*ring.Member)) error { return nil }

func ExampleRouter() {
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "key %s", r.Header.Get(gateway.HeaderKey))
	}))
	defer worker.Close()
	table, err := ring.New(ring.Config{}, []string{"w1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	members := fixed{ring.NewView(table, []ring.Member{{
		Name: "w1", Incarnation: "1", Role: ring.RoleWorker, State: ring.StateActive, Addr: strings.TrimPrefix(worker.URL, "http://"),
	}})}
	source, err := gateway.ParseKeySource("query:order")
	if err != nil {
		fmt.Println(err)
		return
	}
	router, err := router.New(router.Config{Members: members, Keys: []gateway.KeySource{source}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer router.Close()
	front := httptest.NewServer(router)
	defer front.Close()

	res, err := http.Get(front.URL + "/pay?order=42")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	fmt.Println(res.StatusCode, string(body))
	// Output: 200 key 42
}
