package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version returns the line of --version: the module's version, the commit and
// whether it was changed, where the build knows them, and Go's version.
func version(name string) string {
	module, commit := "(unknown)", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = ", commit " + s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				commit += " with changes"
			}
		}
	}
	return fmt.Sprintf("keyway %s %s%s, %s %s/%s\n", name, module, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
