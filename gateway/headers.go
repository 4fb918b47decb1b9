package gateway

import (
	"fmt"
	"strings"

	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// Headers that router, worker and app exchange. Whatever a client or an app
// sends under the prefix Keyway- is dropped, so that these can be trusted as
// far as the network between router and worker can.
const (
	HeaderKey       = "Keyway-Key"       // to worker and app: the key, percent-encoded
	HeaderEpoch     = "Keyway-Epoch"     // to worker: highest epoch the router knows; to app: the epoch of this execution; in a refusal: the owner's
	HeaderToken     = "Keyway-Token"     // to app: the fencing token of this execution
	HeaderPartition = "Keyway-Partition" // to app: the key's partition
)

const headerPrefix = "Keyway-"

// CheckUpgrade returns an error unless protocol, as in the header Upgrade (RFC
// 9110, section 7.8), can be one of router.Config.Upgrades and
// worker.Config.Upgrades. HTTP itself, also within TLS, cannot: its requests would
// reach the app with any key and token, and without their keys held.
func CheckUpgrade(protocol string) error {
	name, version, versioned := strings.Cut(protocol, "/")
	switch lower := strings.ToLower(name); {
	case !grammar.IsToken(name) || versioned && !grammar.IsToken(version):
		return fmt.Errorf("gateway: %q is not a protocol's name, such as websocket", protocol)
	case lower == "h2c" || lower == "h2" || lower == "http" || lower == "tls":
		return fmt.Errorf("gateway: upgrades to %s cannot be allowed: requests in it would reach the app without their keys held", protocol)
	}
	return nil
}
