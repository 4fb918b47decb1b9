// Package metrictest reads metrics as Prometheus does.
package metrictest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

// Values are metrics by name and labels, such as name{a="x",b="y"}. Of a histogram
// there are name_count and name_sum.
type Values map[string]float64

// Gather reads the metrics of collectors. It fails the test if they contradict their
// descriptions or each other, or break a rule of promlint.
func Gather(t testing.TB, parts ...prometheus.Collector) Values {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	for _, p := range parts {
		if err := registry.Register(p); err != nil {
			t.Fatal(err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	values := make(Values)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			values.add(f.GetName(), m)
		}
	}
	return values
}

func (v Values) add(name string, m *dto.Metric) {
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	slices.Sort(labels)
	suffix := ""
	if len(labels) > 0 {
		suffix = "{" + strings.Join(labels, ",") + "}"
	}
	switch {
	case m.GetHistogram() != nil:
		v[name+"_count"+suffix] = float64(m.GetHistogram().GetSampleCount())
		v[name+"_sum"+suffix] = m.GetHistogram().GetSampleSum()
	case m.GetCounter() != nil:
		v[name+suffix] = m.GetCounter().GetValue()
	default:
		v[name+suffix] = m.GetGauge().GetValue()
	}
}

// Changed returns how much each metric has grown since before. What has not changed
// is left out.
func (v Values) Changed(before Values) Values {
	changed := make(Values)
	for name, value := range v {
		if d := value - before[name]; d != 0 {
			changed[name] = d
		}
	}
	return changed
}
