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

// fixed is a gateway.Members that never changes; a real one is gossip.Cluster.
type fixed struct{ view *ring.View }

func (f fixed) Self() ring.Member                 { return ring.Member{} }
func (f fixed) View() *ring.View                  { return f.view }
func (f fixed) Changed() <-chan struct{}          { return nil }
func (f fixed) Settings() ring.Settings           { return ring.Settings{} }
func (f fixed) Secrets(string) [][]byte           { return nil }
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
	router, err := router.New(router.Config{Members: members, Keys: gateway.KeySources{source}})
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
