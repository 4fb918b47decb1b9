package routes_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/test/kit"
)

type bodied struct {
	request
	body string
}

func (r bodied) KeyBody() ([]byte, error) { return []byte(r.body), nil }

// Of ordinary requests at most 1 % are refused.
func TestOrdinaryRequestsAreTaken(t *testing.T) {
	list := kit.Must(os.ReadFile(filepath.Join("..", "..", "gateway", "conformance", "testdata", "ordinary.txt")))
	n, refused := 0, 0
	for line := range strings.Lines(string(list)) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		n++
		f := append(strings.Split(strings.TrimSuffix(line, "\n"), "\t"), "", "")
		r := httptest.NewRequest(f[0], f[3], nil)
		r.Header.Set("Content-Type", f[4])
		all := table(t, `name: a, match: {path: "`+f[1]+`"}, key: "`+f[2]+`"`, `name: rest, without-key: any`)
		route, err := all.Match(r.Host, r.Method, r.URL.EscapedPath())
		key := ""
		if err == nil {
			key, err = route.Key(bodied{request{r}, f[5]}, new([]byte))
		}
		if err != nil {
			refused++
			t.Logf("%s %s: %v", f[0], f[3], err)
		} else if key == "" || route.Name != "a" {
			t.Errorf("%s %s: key %q of route %s", f[0], f[3], key, route.Name)
		}
	}
	if n < 200 || refused*100 > n {
		t.Errorf("%d of %d refused", refused, n)
	}
}
