package metrics

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// module is the path of the module that Build looks for.
const module = "github.com/keyway-go/keyway"

// Build says of what a program was made.
type Build struct {
	Version   string // of this module; "(unknown)" if the build does not say
	Revision  string // of its repository; "" if the build does not say
	Modified  bool   // there were changes to it
	GoVersion string
}

// ReadBuild returns the running program's.
func ReadBuild() Build {
	b := Build{Version: "(unknown)", GoVersion: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Path != module {
		for _, dep := range info.Deps {
			if dep.Path == module {
				b.Version = dep.Version
			}
		}
		return b
	}
	b.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

var (
	families Families

	buildInfo = families.Gauge("keyway_build_info", "Version, commit and Go version of the program; always 1.", "version", "revision", "goversion")
)

// Describe implements [prometheus.Collector].
func (b Build) Describe(ch chan<- *prometheus.Desc) { families.Describe(ch) }

// Collect implements [prometheus.Collector].
func (b Build) Collect(ch chan<- prometheus.Metric) {
	Send(ch, buildInfo, 1, b.Version, b.Revision, b.GoVersion)
}

// NewRegistry returns a program's own registry, with these collectors, and those of the
// build, of Go's runtime and of the process.
func NewRegistry(parts ...prometheus.Collector) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(ReadBuild(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(parts...)
	return r
}
