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

func ExampleClient() {
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
	source, err := gateway.ParseKeySource("path:/orders/{key}/")
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := router.NewClient(router.ClientConfig{Members: members, Keys: gateway.KeySources{source}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	owner, err := client.Owner("42")
	if err != nil {
		fmt.Println(err)
		return
	}
	web := &http.Client{Transport: client}
	res, err := web.Post("/orders/42/pay", "text/plain", strings.NewReader("10 EUR"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	fmt.Println(owner.Name, res.StatusCode, string(body))
	// Output: w1 200 key 42
}
