// Package local finds the nodes of an example a place on this machine where no
// other cluster is.
package local

import (
	"fmt"
	"net"
)

// Meeting returns a free address, for keyway.Config.Join of all of an example's
// nodes. By default nodes of one machine meet at 127.0.0.1:7946, and would take
// part in whatever runs there.
func Meeting() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}
