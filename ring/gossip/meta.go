package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"time"

	"github.com/keyway-go/keyway/internal/wire/packed"
	"github.com/keyway-go/keyway/ring"
)

// Limits of what a member says about itself. Together they keep every
// metadata under memberlist's limit, which it enforces with a panic.
const (
	metaLimit      = 512
	nameLimit      = 128 // a member's name, which travels in the node's name
	keySourceLimit = 96  // bytes; see shortKeySource
)

// Every metadata starts with a mark, which distinguishes it from those of other memberlist
// programs, and a version. A decoder ignores bytes after the last field that it knows, so a new
// field needs no new version.
const (
	metaMark    = 'K'
	metaVersion = 3
)

// epochLimit is far above every real epoch, whose size is that of Unix seconds, and equally far
// below the limit of tokens. A lying member can therefore neither stop the epochs from rising nor
// make tokens overflow.
const epochLimit = 1 << 42

var errNotKeyway = errors.New("not a member of a Keyway cluster")

// metadata is a member's description of itself for its peers, sent by memberlist. Its name and
// gossip address are not in it, since they are those of the node.
type metadata struct {
	self     ring.Member // without Name and Gossip, and without TLS and StoreID, which settings have
	digest   uint64      // of settings, as the member computes it
	settings ring.Settings
	since    int64  // when settings.KeySource came in force; see keys
	version  uint64 // of the status that is in it
}

// shortKeySource shortens a key source for messages between members. A long one is cut and ends in
// its hash, so that different ones stay different.
func shortKeySource(s string) string {
	if len(s) <= keySourceLimit {
		return s
	}
	h := fnv.New64a()
	h.Write([]byte(s))
	return fmt.Sprintf("%s…%016x", s[:keySourceLimit-19], h.Sum64())
}

func newMetadata(m ring.Member, k keys, s ring.Settings, version uint64) metadata {
	s.Store, s.KeySource = m.StoreID, k.source
	m.Name, m.Gossip, m.TLS, m.StoreID = "", "", false, 0
	return metadata{self: m, digest: s.Digest(), settings: s, since: k.since, version: version}
}

// lasting returns md without the status: the part that rarely changes.
func (md metadata) lasting() metadata {
	status{}.update(&md.self)
	md.settings.Store, md.digest, md.version = 0, 0, 0
	return md
}

// member returns the member that describes itself with md.
func (md metadata) member(name, gossip string) ring.Member {
	m := md.self
	m.Name, m.Gossip, m.TLS, m.StoreID = name, gossip, md.settings.PeerTLS, md.settings.Store
	return m
}

// flags are the fields that have a bit each, in the order of the bits; the others are free.
func (md *metadata) flags() []*bool {
	return []*bool{&md.self.Link, &md.settings.PeerTLS, &md.settings.PeerTLSOptional, &md.self.GRPC}
}

// texts are the fields that have a length and so many bytes each, in their order.
func (md *metadata) texts() []*string {
	return []*string{&md.self.Incarnation, &md.self.Addr, &md.self.Store, &md.settings.Cluster, &md.settings.KeySource}
}

// encode fails if md is longer than memberlist can carry.
func (md metadata) encode() ([]byte, error) {
	b, flags := make([]byte, 0, metaLimit), byte(0)
	for bit, on := range md.flags() {
		if *on {
			flags |= 1 << bit
		}
	}
	b = append(b, metaMark, metaVersion, byte(md.self.Role), byte(md.self.State), flags)
	b = binary.BigEndian.AppendUint64(b, md.self.View)
	b = binary.BigEndian.AppendUint64(b, uint64(md.self.Epoch))
	b = binary.BigEndian.AppendUint64(b, md.digest)
	b = binary.BigEndian.AppendUint64(b, uint64(md.settings.TTL))
	b = binary.BigEndian.AppendUint64(b, uint64(md.settings.Store))
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(md.settings.Ring.Load))
	b = binary.AppendUvarint(b, uint64(md.settings.Ring.Partitions))
	b = binary.AppendUvarint(b, uint64(md.settings.Ring.ReplicationFactor))
	for _, s := range md.texts() {
		b = binary.AppendUvarint(b, uint64(len(*s)))
		b = append(b, *s...)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(md.since))
	b = binary.AppendUvarint(b, md.version)
	if len(b) > metaLimit {
		return nil, fmt.Errorf("%w: the member's description has %d bytes, at most %d fit: shorten the incarnation (%d), address (%d), store URL (%d), cluster name (%d) or key source (%d)",
			ErrConfig, len(b), metaLimit, len(md.self.Incarnation), len(md.self.Addr), len(md.self.Store), len(md.settings.Cluster), len(md.settings.KeySource))
	}
	return b, nil
}

func decodeMetadata(b []byte) (metadata, error) {
	if len(b) < 2 || b[0] != metaMark {
		return metadata{}, errNotKeyway
	}
	if b[1] != metaVersion {
		return metadata{}, fmt.Errorf("describes itself in format %d, this version of Keyway knows format %d", b[1], metaVersion)
	}
	r := packed.Reader{Rest: b[2:]}
	md := metadata{self: ring.Member{Role: ring.Role(r.Byte()), State: ring.State(r.Byte())}}
	flags := r.Byte()
	for bit, on := range md.flags() {
		*on = flags>>bit&1 != 0
	}
	md.self.View = r.Uint64()
	md.self.Epoch = int64(r.Uint64())
	md.digest = r.Uint64()
	md.settings.TTL = time.Duration(r.Uint64())
	md.settings.Store = ring.StoreID(r.Uint64())
	md.settings.Ring.Load = math.Float64frombits(r.Uint64())
	md.settings.Ring.Partitions = int(r.Number(math.MaxInt32))
	md.settings.Ring.ReplicationFactor = int(r.Number(math.MaxInt32))
	for _, s := range md.texts() {
		*s = r.Text()
	}
	md.since = int64(r.Uint64())
	md.version = r.Number(math.MaxInt64)
	switch {
	case r.Bad:
		return metadata{}, errors.New("its description is truncated")
	case md.self.Role != ring.RoleWorker && md.self.Role != ring.RoleRouter:
		return metadata{}, fmt.Errorf("has an unknown role (%d)", md.self.Role)
	case md.since < 0:
		return metadata{}, fmt.Errorf("has a key source since an impossible time (%d)", md.since)
	}
	if err := statusOf(md.self, md.version).validate(); err != nil {
		return metadata{}, err
	}
	return md, nil
}
