package conformance

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestOrdinaryRequests sends the requests of testdata/ordinary.txt, each on a route of its
// own, through the router. Of 100 at most one may be refused.
func TestOrdinaryRequests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/ordinary.txt")
	if err != nil {
		t.Fatal(err)
	}
	var routes strings.Builder
	routes.WriteString("routes:\n")
	var list []request
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		fmt.Fprintf(&routes, "  - {name: r%d, match: {hosts: [r%d.example], methods: [%s], path: '%s'}, key: '%s'}\n", len(list), len(list), f[0], f[1], f[2])
		r := request{method: f[0], target: f[3], host: fmt.Sprintf("r%d.example", len(list)), http2: len(list)%4 == 0}
		if len(f) > 4 {
			r.fields, r.body = []string{"Content-Type: " + f[4]}, f[5]
		}
		list = append(list, r)
	}
	router, _ := newRouted(t, routes.String(), "")
	c := asker{addr: router}
	var refused []string
	for _, r := range list {
		if a := c.ask(r); a.status != 200 {
			refused = append(refused, fmt.Sprintf("%d %s: %s", a.status, r, a.body))
		}
	}
	t.Logf("%d of %d ordinary requests are refused:\n%s", len(refused), len(list), strings.Join(refused, "\n"))
	if len(list) < 200 || len(refused) > len(list)/100 {
		t.Errorf("more than 1 %% of %d", len(list))
	}
}
