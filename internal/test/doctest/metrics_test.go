package doctest

import (
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/fallback"
	"github.com/keyway-go/keyway/fallback/lock"
	"github.com/keyway-go/keyway/gateway/lockservice"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/tracing"
)

// family is what a document says of the metrics of one name, or what there is.
type family struct{ kind, labels string }

var (
	metricRow   = regexp.MustCompile("(?m)^\\| `(keyway_[a-z0-9_]+)` \\| (\\w+) \\| ([^|]*)\\|")
	description = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	quoted      = regexp.MustCompile("`(\\w+)`")
)

// docs/metrics.md has each metric that there is, with its type and its labels, and no
// other.
func TestMetricsOfDocuments(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	said := make(map[string]family)
	for _, row := range metricRow.FindAllStringSubmatch(string(text), -1) {
		var labels []string
		for _, l := range quoted.FindAllStringSubmatch(row[3], -1) {
			labels = append(labels, l[1])
		}
		said[row[1]] = family{row[2], strings.Join(labels, ",")}
	}
	there := described(t)
	for _, name := range slices.Sorted(maps.Keys(there)) {
		switch doc, ok := said[name]; {
		case !ok:
			t.Errorf("docs/metrics.md lacks %s", name)
		case doc.labels != there[name].labels:
			t.Errorf("docs/metrics.md says that %s has the labels %s: they are %s", name, doc.labels, there[name].labels)
		case there[name].kind != "" && doc.kind != there[name].kind:
			t.Errorf("docs/metrics.md says that %s is a %s: it is a %s", name, doc.kind, there[name].kind)
		}
	}
	for name := range said {
		if _, ok := there[name]; !ok {
			t.Errorf("docs/metrics.md has %s, which does not exist", name)
		}
	}
}

// described returns the metrics of all collectors; the kinds of those alone that have
// values without anything having been done.
func described(t *testing.T) map[string]family {
	node := kit.Must(keyway.Start(t.Context(), keyway.Config{Join: []string{kit.FreeAddr(t)}, NewCluster: true}))
	defer node.Close()
	rt := kit.Must(router.New(router.Config{Members: node.Members(), Keys: kit.KeySources(t, "host")}))
	defer rt.Close()
	client := kit.Must(fallback.NewClient("redis://127.0.0.1:1"))
	defer client.Close()
	locker := kit.Must(lock.New(client, lock.Config{}))
	defer locker.Close()
	t.Setenv("OTEL_TRACES_EXPORTER", "console")
	traces := kit.Must(tracing.Environment("doctest")).Start(io.Discard, slog.New(slog.DiscardHandler))
	defer traces.Close()
	parts := []prometheus.Collector{node, rt, lockservice.New(rt, lockservice.Config{}), locker, traces}
	all := make(map[string]family)
	for _, p := range parts {
		ch := make(chan *prometheus.Desc)
		go func() {
			defer close(ch)
			p.Describe(ch)
		}()
		for d := range ch {
			found := description.FindStringSubmatch(d.String())
			if found == nil {
				t.Fatalf("cannot read %v", d)
			}
			all[found[1]] = family{labels: found[2]}
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(parts...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		all[f.GetName()] = family{strings.ToLower(f.GetType().String()), all[f.GetName()].labels}
	}
	return all
}
