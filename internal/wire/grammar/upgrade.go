package grammar

import (
	"fmt"
	"strings"
)

// CheckUpgrade returns an error unless a gateway may let an app switch to protocol, a value of the
// field Upgrade (RFC 9110, section 7.8). HTTP itself is refused, also within TLS: its requests
// would reach the app with any key and token, and without their keys held.
func CheckUpgrade(protocol string) error {
	name, version, versioned := strings.Cut(protocol, "/")
	switch lower := strings.ToLower(name); {
	case !IsToken(name) || versioned && !IsToken(version):
		return fmt.Errorf("%q is not a protocol's name, such as websocket", protocol)
	case lower == "h2c" || lower == "h2" || lower == "http" || lower == "tls":
		return fmt.Errorf("upgrades to %s cannot be allowed: requests in it would reach the app without their keys held", protocol)
	}
	return nil
}
