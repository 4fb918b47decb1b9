// Package hop holds what a router and a worker must agree on: the headers of a
// refusal, the configuration of the link, and the bounds of a message.
package hop

import (
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// OtherStore says that a worker uses another store than this process, here.
func OtherStore(here ring.StoreID, m ring.Member) error {
	return fmt.Errorf("%w: store: %v here, %v at worker %q (%s): give all members of a cluster the same --redis", ring.ErrSettings, here, m.StoreID, m.Name, m.Gossip)
}

// MaxRepeatedBody is the size of the largest body that is read before the request
// is sent. So a slow client holds no key while it sends one, and the request
// can go to another worker.
const MaxRepeatedBody = 64 << 10

// Bounds of a worker's server for plain HTTP.
const (
	MaxHeaderBytes    = 64 << 10
	ReadHeaderTimeout = 10 * time.Second
	IdleTimeout       = 2 * time.Minute
)

// LinkConfig is what both ends of a link must agree on, and their bounds.
func LinkConfig(m gateway.Members, headerBytes int, logger *slog.Logger) link.Config {
	s := m.Settings().WithDefaults()
	store := func() uint64 { return uint64(m.Settings().Store) }
	return link.Config{Cluster: s.Cluster, Digest: s.Digest(), Store: store, MaxHeaderBytes: headerBytes, Logger: logger}
}

// Headers of a worker's refusal.
const (
	HeaderRefused   = "Keyway-Refused" // set by the worker itself, never by an app
	HeaderOwner     = "Keyway-Owner"   // incarnation
	HeaderOwnerAddr = "Keyway-Owner-Addr"
)

// Values of HeaderRefused. Each says that the request did not start.
const (
	RefusedNotOwner    = "not-owner"   // 421: another worker owns the key
	RefusedUnavailable = "unavailable" // 503: this worker admits nothing at the moment
	RefusedBusy        = "busy"        // 429: too many requests wait, for the client to retry
)

// ReadRefusal returns the refusal after which a request goes elsewhere or waits,
// nil for none. Apps cannot send its headers: their worker strips them.
func ReadRefusal(h http.Header) *link.RefusedError {
	switch h.Get(HeaderRefused) {
	case RefusedNotOwner:
		epoch, err := strconv.ParseInt(h.Get(gateway.HeaderEpoch), 10, 64)
		if err != nil {
			return &link.RefusedError{Reason: link.NotOwner}
		}
		return &link.RefusedError{Reason: link.NotOwner, Owner: h.Get(HeaderOwner), Epoch: epoch}
	case RefusedUnavailable:
		return &link.RefusedError{Reason: link.Unavailable}
	}
	return nil
}
