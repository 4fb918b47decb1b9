package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/ring"
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

// MaxKeyLen is the length of the longest key in bytes.
const MaxKeyLen = 4096

// Errors about keys.
var (
	ErrNoKey  = errors.New("gateway: the request has no key")
	ErrBadKey = errors.New("gateway: bad key")
)

// CheckKey returns an error that wraps [ErrNoKey] or [ErrBadKey] unless key is
// 1 to [MaxKeyLen] bytes of valid UTF-8 without control characters. A key is
// compared byte by byte: no case folding and no Unicode normalization.
func CheckKey(key string) error {
	if key == "" {
		return ErrNoKey
	}
	if len(key) > MaxKeyLen {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrBadKey, len(key), MaxKeyLen)
	}
	plain := true
	for i := range len(key) {
		c := key[i]
		if c < 0x20 || c == 0x7f {
			return fmt.Errorf("%w: control character %#02x at byte %d", ErrBadKey, c, i)
		}
		plain = plain && c < utf8.RuneSelf
	}
	if !plain && !utf8.ValidString(key) {
		return fmt.Errorf("%w: not valid UTF-8", ErrBadKey)
	}
	return nil
}

// Members is what gateway needs to know of the cluster; gossip.Cluster
// implements it.
type Members interface {
	// View returns the present view; never nil.
	View() *ring.View
	// Settings returns what all members share; it does not change.
	Settings() ring.Settings
	// Changed returns a channel that is closed at the next change of View.
	Changed() <-chan struct{}
	// Announce changes what the other members see of this one: its Incarnation,
	// State, Addr, Link or Store. Its View is kept up to date without that.
	Announce(update func(self *ring.Member)) error
}

// KeyFromHeader returns the key that a worker passes to its handlers and apps
// in [HeaderKey].
func KeyFromHeader(h http.Header) (string, error) {
	key, err := url.PathUnescape(h.Get(HeaderKey))
	if err != nil {
		return "", fmt.Errorf("%w: %s is not percent-encoded", ErrBadKey, HeaderKey)
	}
	return key, CheckKey(key)
}

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
