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

// Families are those of one collector. Each method adds a family and returns it.
type Families []Family

func (f *Families) add(kind prometheus.ValueType, name, help string, labels []string) Family {
	one := Family{prometheus.NewDesc(name, help, labels, nil), kind}
	*f = append(*f, one)
	return one
}

// Counter adds a family of counters.
func (f *Families) Counter(name, help string, labels ...string) Family {
	return f.add(prometheus.CounterValue, name, help, labels)
}

// Gauge adds a family of gauges.
func (f *Families) Gauge(name, help string, labels ...string) Family {
	return f.add(prometheus.GaugeValue, name, help, labels)
}

// Histogram adds a family of histograms.
func (f *Families) Histogram(name, help string, labels ...string) Family {
	return f.add(prometheus.UntypedValue, name, help, labels)
}

// Describe sends the descriptions of the families.
func (f Families) Describe(ch chan<- *prometheus.Desc) {
	for _, one := range f {
		ch <- one.desc
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

// SendHistogram sends a histogram in seconds, with the values of its labels.
func SendHistogram(ch chan<- prometheus.Metric, f Family, d Distribution, labels ...string) {
	buckets := make(map[float64]uint64, len(latencyBounds))
	count := uint64(0)
	for i, bound := range latencyBounds {
		count += d.counts[i]
		buckets[bound.Seconds()] = count
	}
	count += d.counts[len(latencyBounds)]
	ch <- prometheus.MustNewConstHistogram(f.desc, count, d.sum, buckets, labels...)
}
