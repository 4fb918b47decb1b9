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
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}

// NewRegistry returns a program's own registry, with these collectors, and those of the
// build, of Go's runtime and of the process.
func NewRegistry(parts ...prometheus.Collector) *prometheus.Registry {
	r, b := prometheus.NewRegistry(), ReadBuild()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "keyway_build_info", Help: "Version, commit and Go version of the program; always 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "goversion": b.GoVersion},
	})
	build.Set(1)
	r.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(parts...)
	return r
}
