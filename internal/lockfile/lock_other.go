//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package lockfile

import (
	"errors"
	"os"
)

// lock fails: this system has no lock that ends with the process for sure.
func lock(*os.File, bool) error { return errors.ErrUnsupported }
