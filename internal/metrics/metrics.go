// Package metrics has what the parts of Keyway have in common that count: families of
// metrics, histograms that cost an event a few nanoseconds, and the registry of a
// program. Counts live where things happen, as atomic numbers; they are turned into
// metrics of Prometheus when these are collected.
package metrics

import "github.com/prometheus/client_golang/prometheus"

// Family is all metrics of one name.
type Family struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// Counter returns a family of counters.
func Counter(name, help string, labels ...string) Family {
	return Family{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// Gauge returns a family of gauges.
func Gauge(name, help string, labels ...string) Family {
	return Family{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

// Histogram returns a family of histograms.
func Histogram(name, help string, labels ...string) Family {
	return Family{prometheus.NewDesc(name, help, labels, nil), prometheus.UntypedValue}
}

// Describe sends the descriptions of families.
func Describe(ch chan<- *prometheus.Desc, families []Family) {
	for _, f := range families {
		ch <- f.desc
	}
}

// Number is what a counter or a gauge may be.
type Number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// Send sends the value of a counter or a gauge, with the values of its labels.
func Send[N Number](ch chan<- prometheus.Metric, f Family, value N, labels ...string) {
	ch <- prometheus.MustNewConstMetric(f.desc, f.kind, float64(value), labels...)
}

// SendHistogram sends a histogram, with the values of its labels.
func SendHistogram(ch chan<- prometheus.Metric, f Family, d Distribution, labels ...string) {
	buckets := make(map[float64]uint64, len(d.bounds))
	count := uint64(0)
	for i, n := range d.counts {
		count += n
		if i < len(d.bounds) {
			buckets[d.bounds[i]] = count
		}
	}
	ch <- prometheus.MustNewConstHistogram(f.desc, count, d.sum, buckets, labels...)
}
