//go:build !linux

package appwork

import (
	"errors"
	"net"
	"os"
)

// share fails: only Linux has supervisors.
func share(net.Conn, *os.File) (net.Conn, error) { return nil, errors.ErrUnsupported }
