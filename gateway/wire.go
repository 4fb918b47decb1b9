package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"unicode/utf8"

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

// Headers of a worker's refusal.
const (
	headerRefused   = "Keyway-Refused" // set by the worker itself, never by an app
	headerOwner     = "Keyway-Owner"   // incarnation
	headerOwnerAddr = "Keyway-Owner-Addr"
)

// Values of headerRefused. Each says that the request did not start.
const (
	refusedNotOwner    = "not-owner"   // 421: another worker owns the key
	refusedUnavailable = "unavailable" // 503: this worker admits nothing at the moment
	refusedBusy        = "busy"        // 429: too many requests wait, for the client to retry
)

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

// Membership is what gateway needs to know of the cluster; gossip.Cluster
// implements it.
type Membership interface {
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
