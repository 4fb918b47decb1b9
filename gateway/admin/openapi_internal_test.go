package admin

import (
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// openapi.yaml describes the pages that there are, and no others.
func TestOpenAPIHasEveryPage(t *testing.T) {
	var described struct {
		Paths map[string]map[string]any
	}
	if err := yaml.Unmarshal(openAPI, &described); err != nil {
		t.Fatal(err)
	}
	var want []string
	for path, methods := range described.Paths {
		for method := range methods {
			want = append(want, strings.ToUpper(method)+" "+path)
		}
	}
	var have []string
	for _, p := range (&admin{}).pages() {
		have = append(have, strings.NewReplacer("...}", "}", "/{$}", "/").Replace(p.pattern))
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		t.Errorf("openapi.yaml describes\n%s\nand there are\n%s", strings.Join(want, "\n"), strings.Join(have, "\n"))
	}
}
