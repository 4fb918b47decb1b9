package keyway_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/metrictest"
)

// A node collects the metrics of its parts, serves them at its admin address, and
// can be registered in the program's own registry, several times with labels.
func TestMetrics(t *testing.T) {
	cfg := config(t, "a", kit.FreeAddr(t))
	cfg.NewCluster, cfg.Admin = true, "127.0.0.1:0"
	node := start(t, cfg)
	if err := node.Do(t.Context(), "k", func(keyway.Execution) error { return nil }); err != nil {
		t.Fatal(err)
	}
	all := metrictest.Gather(t, node)
	for name, want := range map[string]float64{
		"keyway_worker_executions_total":                      1,
		"keyway_worker_ready":                                 1,
		`keyway_gossip_members{role="worker",state="active"}`: 1,
	} {
		if all[name] != want {
			t.Errorf("%s is %v, want %v", name, all[name], want)
		}
	}
	res, text := kit.Fetch(t, "http://"+node.AdminAddr()+"/metrics")
	for _, want := range []string{"keyway_build_info{", "keyway_worker_executions_total 1", "go_goroutines", "process_open_fds", "keyway_gossip_members{"} {
		if res.StatusCode != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("/metrics: %d, %q is missing", res.StatusCode, want)
		}
	}
	if res, _ := kit.Fetch(t, "http://"+node.AdminAddr()+"/metrics", "Accept", "application/openmetrics-text"); !strings.HasPrefix(res.Header.Get("Content-Type"), "application/openmetrics-text") {
		t.Errorf("OpenMetrics: %v", res.Header)
	}
	if res, _ := kit.Fetch(t, "http://"+node.AdminAddr()+"/metrics", "Accept-Encoding", "gzip"); res.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("compressed: %v", res.Header)
	}
	if res, text := kit.Fetch(t, "http://"+node.AdminAddr()+"/hot"); res.StatusCode != http.StatusOK || !strings.Contains(text, `"keys": []`) {
		t.Errorf("/hot: %d %s", res.StatusCode, text)
	}
	registry := prometheus.NewRegistry()
	for _, name := range []string{"a", "b"} {
		if err := prometheus.WrapRegistererWith(prometheus.Labels{"node": name}, registry).Register(node); err != nil {
			t.Error(err)
		}
	}
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
}

// Metrics of the program's own stand beside the node's, and cannot take their place.
func TestFurtherMetrics(t *testing.T) {
	cfg := config(t, "a", kit.FreeAddr(t))
	cfg.NewCluster, cfg.Admin = true, "127.0.0.1:0"
	own := prometheus.NewCounter(prometheus.CounterOpts{Name: "own_total"})
	cfg.Metrics = []prometheus.Collector{own}
	node := start(t, cfg)
	if _, text := kit.Fetch(t, "http://"+node.AdminAddr()+"/metrics"); !strings.Contains(text, "own_total 0") || !strings.Contains(text, "keyway_worker_ready 1") {
		t.Errorf("/metrics: %s", text)
	}
	cfg.Name, cfg.Metrics = "b", []prometheus.Collector{own, node}
	if _, err := keyway.Start(t.Context(), cfg); !errors.Is(err, keyway.ErrConfig) || !strings.Contains(err.Error(), "Config.Metrics") {
		t.Errorf("%v, want ErrConfig about Config.Metrics", err)
	}
}
