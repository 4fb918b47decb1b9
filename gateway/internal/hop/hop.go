// Package hop holds what a router and a worker must agree on: the headers of a
// refusal, the configuration of the link, and the bounds of a message.
package hop

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// OtherStore says that a worker uses another store than this process, here.
func OtherStore(here ring.StoreID, m ring.Member) error {
	return fmt.Errorf("%w: store: %v here, %v at worker %q (%s): give all members of a cluster the same --store or --redis", ring.ErrSettings, here, m.StoreID, m.Name, m.Gossip)
}

// Default sets *value, a field of a Config, to def if it is 0. If it is negative, *err becomes an
// error about field, unless it is set already.
func Default[T int | int64 | time.Duration](err *error, field string, value *T, def T) {
	if *value < 0 && *err == nil {
		*err = fmt.Errorf("%s is %v: it cannot be negative, and 0 stands for %v", field, *value, def)
	}
	*value = cmp.Or(*value, def)
}

// IsCall reports whether a request with that Content-Type says that it is a call of gRPC, whose two sides may
// talk. A client may say so of anything, so its body streams only to a worker whose
// operator has configured it for gRPC.
func IsCall(http2 bool, contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	kind, _, _ = strings.Cut(strings.TrimSpace(kind), "+")
	return http2 && strings.EqualFold(kind, "application/grpc")
}

// CheckPeerTLS returns an error unless a field and the members' announcements agree about TLS
// between members.
func CheckPeerTLS(field string, t *gateway.PeerTLS, m gateway.Members) error {
	settings := m.Settings()
	switch {
	case t != nil && settings.PeerTLS && t.Optional() != settings.PeerTLSOptional:
		return fmt.Errorf("%s and the members' settings disagree on whether TLS is optional: set PeerTLSOptional of ring.Settings as PeerTLSConfig.Optional", field)
	case t != nil && !settings.PeerTLS:
		return fmt.Errorf("%s is set, and the members' settings say that they speak no TLS: set PeerTLS of ring.Settings too", field)
	case t == nil && settings.PeerTLS:
		return fmt.Errorf("%s is missing: the members' settings say that they speak TLS (PeerTLS of ring.Settings)", field)
	}
	return nil
}

// MaxRepeatedBody is the size of the largest body that is read before the request is sent. So a
// slow client holds no key while it sends one, and the request can go to another worker.
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
	return link.Config{Cluster: s.Cluster, Digest: s.Digest(), Secrets: m.Secrets("keyway link 3"), Store: store, MaxHeaderBytes: headerBytes, Logger: logger}
}

// Headers of a worker's refusal, in addition to [gateway.HeaderEpoch]. Apps cannot send them: their
// worker strips them.
const (
	headerRefused   = "Keyway-Refused" // a link.Reason
	headerOwner     = "Keyway-Owner"   // incarnation
	headerOwnerAddr = "Keyway-Owner-Addr"
)

// Headers that a router sends to a worker in addition to those of package gateway. The link has
// places of its own for them.
const (
	HeaderClient = "Keyway-Client" // what ClientID returns, in decimal
	HeaderPolicy = "Keyway-Policy" // what package policy encodes, in base64url
)

// FieldTiming is a field of a worker's answer for routers that ask for it. It has two numbers of
// microseconds with a space between them: how long the request waited for its key, and how long it
// held it. Over the link it is a trailer if the answer has a body.
const FieldTiming = "Keyway-Timing"

// FormatTiming returns a value of FieldTiming.
func FormatTiming(wait, run time.Duration) string {
	b := strconv.AppendInt(nil, wait.Microseconds(), 10)
	return string(strconv.AppendInt(append(b, ' '), run.Microseconds(), 10))
}

// ParseTiming returns what FormatTiming was given, in whole microseconds.
func ParseTiming(value string) (wait, run time.Duration, ok bool) {
	first, second, _ := strings.Cut(value, " ")
	w, err1 := strconv.ParseUint(first, 10, 48)
	r, err2 := strconv.ParseUint(second, 10, 48)
	if err1 != nil || err2 != nil {
		return 0, 0, false
	}
	return time.Duration(w) * time.Microsecond, time.Duration(r) * time.Microsecond, true
}

// ClientID returns a number that identifies the client at addr, an address without a port. It is
// the xxhash64 of the address in its canonical text. An IPv6 address counts as its /64 network,
// since one machine may have all addresses of that. ClientID is never 0, which stands for an
// unknown client.
func ClientID(addr string) uint64 {
	id := xxhash.Sum64String(addr)
	if ip, err := netip.ParseAddr(addr); err == nil {
		var memory [64]byte
		text := memory[:0]
		if ip = ip.Unmap().WithZone(""); ip.Is4() {
			text = ip.AppendTo(text)
		} else {
			network, _ := ip.Prefix(64) // which an IPv6 address has
			text = network.AppendTo(text)
		}
		id = xxhash.Sum64(text)
	}
	return max(id, 1)
}

// WriteRefusal writes the headers that mark a refusal for a router over HTTP.
func WriteRefusal(h http.Header, r *link.RefusedError) {
	h.Set(headerRefused, r.Reason.String())
	if r.Owner != "" {
		h.Set(headerOwner, r.Owner)
		h.Set(headerOwnerAddr, r.Addr)
		h.Set(gateway.HeaderEpoch, strconv.FormatInt(r.Epoch, 10))
	}
}

// ReadRefusal returns a refusal over HTTP after which the request goes elsewhere
// or waits; nil for none. header returns the value of a header.
func ReadRefusal(header func(name string) string) *link.RefusedError {
	switch header(headerRefused) {
	case link.NotOwner.String():
		epoch, err := strconv.ParseInt(header(gateway.HeaderEpoch), 10, 64)
		if err != nil {
			return &link.RefusedError{Reason: link.NotOwner}
		}
		return &link.RefusedError{Reason: link.NotOwner, Owner: header(headerOwner), Epoch: epoch}
	case link.Unavailable.String():
		return &link.RefusedError{Reason: link.Unavailable}
	}
	return nil
}

// IsBusy reports whether a refusal over HTTP says that too many requests wait.
func IsBusy(header func(name string) string) bool {
	return header(headerRefused) == link.Busy.String()
}
