// Package ring is for programs that set what the members of a cluster share, or ask which
// member should own a key.
//
// A key belongs to a partition: xxhash64(key) mod P, with P fixed for the cluster. A partition
// belongs to a member, by consistent hashing with bounded loads (Mirrokni, Thorup and
// Zadimoghaddam, 2016, as implemented by github.com/buraksezer/consistent). No member has much more
// than its share of the partitions, and a change of the members moves few more than necessary.
//
// A [Table] holds the outcome. It is immutable and a pure function of the [Config] and the set of
// members. Since neither the order of joining nor former members affect it, processes that see the
// same members agree without asking each other. [New] computes a table once; a [Builder] follows a
// changing membership.
//
// A [View] joins a table to the members that one process sees.
//
// A table says who should own a partition. Package internal/handoff decides who owns it while it
// moves.
package ring

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"
)

// Defaults of Config. defaultLoad is a little below the 1.25 that is usual for bounded loads,
// because the bound is rounded up to whole partitions. With it, no member among up to 100 has more
// than 1.25 times the mean of defaultPartitions.
const (
	defaultPartitions        = 4096
	defaultReplicationFactor = 128
	defaultLoad              = 1.225
)

// Limits of Config and of the number of members.
const (
	maxPartitions        = 1 << 20
	maxReplicationFactor = 1 << 12
	maxMembers           = 1 << 16
)

// ErrConfig means that a setting of the ring, or the members that it was given,
// are out of range.
var ErrConfig = errors.New("ring: bad configuration")

// Config holds the settings of a ring. All members of a cluster must use the
// same; compare [Config.Digest]. The zero value is the default.
type Config struct {
	// Partitions is the number of partitions, at most 1<<20.
	// 0 means 4096.
	Partitions int

	// ReplicationFactor is the number of points that each member has on the hash circle, at most
	// 4096. 0 means 128.
	ReplicationFactor int

	// Load bounds the partitions of a member to Load times the mean, rounded
	// up; at least 1. 0 means 1.225.
	Load float64
}

// Partition returns the partition of key, in [0, Partitions). It does not
// allocate.
func (c Config) Partition(key string) int {
	p := uint64(defaultPartitions)
	if c.Partitions > 0 {
		p = uint64(c.Partitions)
	}
	return int(xxhash.Sum64String(key) % p)
}

// Digest identifies the settings: two configurations that place a key or a member differently have
// different digests, except for collisions of 64 bits. A zero field counts as its default.
func (c Config) Digest() uint64 {
	c = c.withDefaults()
	b := []byte("keyway ring 1")
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Partitions))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.ReplicationFactor))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(c.Load))
	return xxhash.Sum64(b)
}

func (c Config) withDefaults() Config {
	c.Partitions = cmp.Or(c.Partitions, defaultPartitions)
	c.ReplicationFactor = cmp.Or(c.ReplicationFactor, defaultReplicationFactor)
	c.Load = cmp.Or(c.Load, defaultLoad)
	return c
}

// validate takes a Config with its defaults filled in.
func (c Config) validate() error {
	if c.Partitions < 1 || c.Partitions > maxPartitions {
		return fmt.Errorf("%w: %d partitions, want 1 to %d", ErrConfig, c.Partitions, maxPartitions)
	}
	if c.ReplicationFactor < 1 || c.ReplicationFactor > maxReplicationFactor {
		return fmt.Errorf("%w: replication factor %d, want 1 to %d", ErrConfig, c.ReplicationFactor, maxReplicationFactor)
	}
	if !(c.Load >= 1) || math.IsInf(c.Load, 1) {
		return fmt.Errorf("%w: load %v, want a number of at least 1", ErrConfig, c.Load)
	}
	return nil
}

// digestOf extends a digest by texts, each with its length so that no two
// lists run together.
func digestOf(seed uint64, texts ...string) uint64 {
	b := binary.LittleEndian.AppendUint64(nil, seed)
	for _, s := range texts {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return xxhash.Sum64(b)
}
