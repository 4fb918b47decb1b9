package cli

import (
	"fmt"
	"runtime"

	"github.com/keyway-go/keyway/internal/metrics"
)

// Version returns the line of --version: the module's version, the commit and
// whether it was changed, where the build knows them, and Go's version.
func Version(name string) string {
	b, commit := metrics.ReadBuild(), ""
	if b.Revision != "" {
		commit = ", commit " + b.Revision
	}
	if b.Modified {
		commit += " with changes"
	}
	return fmt.Sprintf("keyway %s %s%s, %s %s/%s\n", name, b.Version, commit, b.GoVersion, runtime.GOOS, runtime.GOARCH)
}
