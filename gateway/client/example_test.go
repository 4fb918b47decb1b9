package client_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/ring"
)

// fixedMembers is a gateway.Members that never changes; a real one is gossip.Cluster.
type fixedMembers struct{ view *ring.View }

func (f fixedMembers) Self() ring.Member                 { return ring.Member{} }
func (f fixedMembers) View() *ring.View                  { return f.view }
func (f fixedMembers) Changed() <-chan struct{}          { return nil }
func (f fixedMembers) Settings() ring.Settings           { return ring.Settings{} }
func (f fixedMembers) Secrets(string) [][]byte           { return nil }
func (f fixedMembers) Announce(func(*ring.Member)) error { return nil }

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
	members := fixedMembers{ring.NewView(table, []ring.Member{{
		Name: "w1", Incarnation: "1", Role: ring.RoleWorker, State: ring.StateActive, Addr: strings.TrimPrefix(worker.URL, "http://"),
	}})}
	source, err := gateway.ParseKeySource("path:/orders/{key}/")
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := client.New(client.Config{Members: members, Keys: gateway.KeySources{source}})
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
