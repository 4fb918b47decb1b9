package ring

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Defaults and limits of Settings.
const (
	defaultCluster    = "keyway"
	defaultSessionTTL = 10 * time.Second
	MinSessionTTL     = time.Second
	maxClusterLen     = 64 // bytes
)

// Settings are common to all members of a cluster: members with different settings could both own
// one key. A process sets them once, in its membership, and all other parts read them there. The
// zero value is the default.
type Settings struct {
	// Cluster is the name of the cluster. It separates clusters, even if they share a Redis. At
	// most 64 bytes, no braces. "" means "keyway".
	Cluster string

	// Ring places keys and members.
	Ring Config

	// TTL is the time to live of a worker's session: about this long after its crash another worker
	// may serve. At least MinSessionTTL. 0 means 10 s.
	TTL time.Duration

	// KeySource names the parts of a request that hold the key, or stands for a list of routes, see
	// [RoutesKeySource]. Only routers set it; "" is not compared.
	KeySource string

	// PeerTLS says that members speak TLS among themselves (gateway.PeerTLS).
	PeerTLS bool

	// PeerTLSOptional makes a member with PeerTLS also communicate with members without it, while a
	// cluster changes to TLS or from it.
	PeerTLSOptional bool

	// Store identifies the store that the process uses. 0 means unknown, and is not compared.
	Store StoreID
}

// StoreID identifies a store's data of one cluster, independent of servers, restarts and losses of
// data. Its upper half is the time at which the store was begun, in Unix seconds; the rest is
// random. The lower of two is therefore the older store's.
type StoreID uint64

// NewStoreID makes the identity of a store that begins now. random must be a random number.
func NewStoreID(now time.Time, random uint32) StoreID {
	return StoreID(uint64(now.Unix())<<32 | uint64(random))
}

// ParseStoreID parses the text of [StoreID.String].
func ParseStoreID(s string) (StoreID, error) {
	id, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) != 16 {
		return 0, fmt.Errorf("%w: %q is not the identity of a store", ErrConfig, s)
	}
	return StoreID(id), nil
}

// ErrSettings means that two members, or a member and its store, differ in a
// setting that all of a cluster must share.
var ErrSettings = errors.New("ring: settings differ")

func (id StoreID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// WithDefaults returns s with defaults for zero fields, except KeySource and Store, which have
// none.
func (s Settings) WithDefaults() Settings {
	s.Cluster = cmp.Or(s.Cluster, defaultCluster)
	s.Ring = s.Ring.withDefaults()
	s.TTL = cmp.Or(s.TTL, defaultSessionTTL)
	return s
}

// Validate returns an error that wraps ErrConfig if a setting is out of range.
func (s Settings) Validate() error {
	s = s.WithDefaults()
	switch {
	case len(s.Cluster) > maxClusterLen:
		return fmt.Errorf("%w: the cluster's name (--cluster) has %d bytes, want at most %d", ErrConfig, len(s.Cluster), maxClusterLen)
	case strings.ContainsAny(s.Cluster, "{}"):
		return fmt.Errorf("%w: the cluster's name (--cluster) %q has a brace", ErrConfig, s.Cluster)
	case s.TTL < MinSessionTTL:
		return fmt.Errorf("%w: the session TTL (--session-ttl) is %v, want at least %v", ErrConfig, s.TTL, MinSessionTTL)
	}
	return s.Ring.validate()
}

// Digest identifies all settings that determine ownership and that every member has from its start.
// It excludes KeySource, which only routers have, PeerTLS, and Store, which a member learns later.
func (s Settings) Digest() uint64 {
	s = s.WithDefaults()
	return digestOf(s.Ring.Digest(), s.Cluster, s.TTL.String())
}

// Difference is a setting that two members of one cluster must share but do not.
type Difference struct {
	Setting      string // its name
	Ours, Theirs string // its values
	Remedy       string // what to do
}

func (d Difference) String() string {
	return fmt.Sprintf("%s differs: %s here, %s there: %s", d.Setting, d.Ours, d.Theirs, d.Remedy)
}

// Compare returns the first setting whose difference keeps members with the settings s and t from
// being in one cluster, if there is one.
func (s Settings) Compare(t Settings) (d Difference, found bool) {
	const sameRing = "give all members of a cluster the same ring settings, or this one another --cluster"
	s, t = s.WithDefaults(), t.WithDefaults()
	switch {
	case s.Cluster != t.Cluster:
		return differ("cluster name", "%q", s.Cluster, t.Cluster, "give both the same --cluster, or do not --join them"), true
	case s.Ring.Partitions != t.Ring.Partitions:
		return differ("number of partitions", "%d", s.Ring.Partitions, t.Ring.Partitions, sameRing), true
	case s.Ring.ReplicationFactor != t.Ring.ReplicationFactor:
		return differ("replication factor", "%d", s.Ring.ReplicationFactor, t.Ring.ReplicationFactor, sameRing), true
	case s.Ring.Load != t.Ring.Load:
		return differ("load", "%g", s.Ring.Load, t.Ring.Load, sameRing), true
	case s.TTL != t.TTL:
		return differ("session TTL", "%v", s.TTL, t.TTL, "give all members of a cluster the same --session-ttl"), true
	case !keySourcesAgree(s.KeySource, t.KeySource):
		return differ("key source", "%q", s.KeySource, t.KeySource, "give all routers of a cluster the same --key or --routes"), true
	case s.PeerTLS != t.PeerTLS && !s.PeerTLSOptional && !t.PeerTLSOptional:
		return differ("TLS between members", "%s", onOff[s.PeerTLS], onOff[t.PeerTLS], "give all members --peer-cert, --peer-key and --peer-ca, or none; while some have it only, --peer-tls-optional too"), true
	case s.Store != 0 && t.Store != 0 && s.Store != t.Store:
		return differ("store", "%v", s.Store, t.Store, "give all members of a cluster the same --store or --redis"), true
	}
	return Difference{}, false
}

var onOff = map[bool]string{true: "on", false: "off"}

// A KeySource that stands for a list of routes begins so.
const routesKeySource = "routes:"

// routesKnown is how many routes a list may have beyond a shorter list that is known to be its
// beginning.
const routesKnown = 5

// RoutesKeySource returns a KeySource that stands for a list of routes. digests are those of all
// its beginnings: the first of the first route, the last of the whole list. Two lists agree if they
// are equal, or if one has up to five more routes at its end.
func RoutesKeySource(digests []string) string {
	return routesKeySource + strings.Join(digests[max(len(digests)-routesKnown-1, 0):], ",")
}

// keySourcesAgree reports whether two members with these Settings.KeySource take one key
// from each request, as far as both take any. If one of two lists of routes is the beginning of the other, no request
// has a route of each.
func keySourcesAgree(a, b string) bool {
	if a == "" || b == "" || a == b {
		return true
	}
	a, isRoutes := strings.CutPrefix(a, routesKeySource)
	b, areRoutes := strings.CutPrefix(b, routesKeySource)
	as, bs := strings.Split(a, ","), strings.Split(b, ",")
	return isRoutes && areRoutes && (slices.Contains(as, bs[len(bs)-1]) || slices.Contains(bs, as[len(as)-1]))
}

// CompareDigest is Compare with settings that came with their sender's digest of them. Another
// version of Keyway may compute another digest.
func (s Settings) CompareDigest(t Settings, digest uint64) (d Difference, found bool) {
	if d, found = s.Compare(t); found || s.Digest() == digest {
		return d, found
	}
	return differ("ring format (digest)", "%016x", s.Digest(), digest, "run the same version of Keyway everywhere"), true
}

func differ[T any](setting, format string, ours, theirs T, remedy string) Difference {
	return Difference{setting, fmt.Sprintf(format, ours), fmt.Sprintf(format, theirs), remedy}
}
