package cluster_test

import (
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/spantest"
)

// A collector that the environment names gets the spans of both programs, as parts of one trace.
func TestTracesOfPrograms(t *testing.T) {
	sink := spantest.NewSink(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	d := startDemo(t, "w1")
	if _, err := d.send("k", ""); err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]spantest.Sent)
	for _, s := range sink.Await(t, 3) {
		byName[s.Service+": "+s.Name] = s
	}
	request, attempt, execution := byName["keyway-router: GET default"], byName["keyway-router: GET"], byName["keyway-worker: execution"]
	if request.ID == "" || attempt.Parent != request.ID || execution.Parent != attempt.ID || execution.Trace != request.Trace {
		t.Errorf("the collector has %+v", byName)
	}
	for _, p := range []*cluster.Process{d.router, d.workers["w1"]} {
		if _, text := kit.Fetch(t, "http://"+p.Admin+"/metrics"); !strings.Contains(text, `keyway_trace_spans_dropped_total{reason="not-taken"} 0`) {
			t.Errorf("the metrics of %s do not say how many spans were lost", p.Name)
		}
	}
	if err := d.workers["w1"].Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := d.router.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
