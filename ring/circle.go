package ring

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"
)

// errNoRoom means that the members cannot take all partitions within the load
// bound. A larger Config.Load or Config.ReplicationFactor helps.
var errNoRoom = errors.New("ring: not enough room for the partitions")

// point is a place on the hash circle.
type point struct {
	hash   uint64
	member uint16 // index of the sorted set
}

// circle returns the points of the sorted set of members, sorted. If points of two members coincide, the
// later member has both.
func circle(set []string, replicas int, hash func([]byte) uint64) []point {
	points := make([]point, 0, len(set)*replicas)
	var name []byte
	for i, member := range set {
		for replica := range replicas {
			name = append(strconv.AppendInt(name[:0], int64(replica), 10), ':')
			name = append(name, member...)
			points = append(points, point{hash(name), uint16(i)})
		}
	}
	slices.SortFunc(points, func(a, b point) int {
		if a.hash != b.hash {
			return cmp.Compare(a.hash, b.hash)
		}
		return cmp.Compare(b.member, a.member)
	})
	return slices.CompactFunc(points, func(a, b point) bool { return a.hash == b.hash })
}

// owners returns the owner of each partition, as an index of the sorted set. From the partition's own
// hash on, it is the member of the first point whose share is not full. cfg has its defaults.
func owners(cfg Config, set []string, hash func([]byte) uint64) ([]uint16, error) {
	points := circle(set, cfg.ReplicationFactor, hash)
	share := math.Ceil(float64(cfg.Partitions) / float64(len(set)) * cfg.Load)
	loads := make([]float64, len(set))
	owners := make([]uint16, cfg.Partitions)
	var number []byte
	for p := range owners {
		number = binary.LittleEndian.AppendUint64(number[:0], uint64(p))
		at, _ := slices.BinarySearchFunc(points, hash(number), func(p point, hash uint64) int { return cmp.Compare(p.hash, hash) })
		for tried := 0; ; tried++ {
			if tried == len(points) {
				return nil, errNoRoom
			}
			if m := points[(at+tried)%len(points)].member; loads[m]+1 <= share {
				owners[p] = m
				loads[m]++
				break
			}
		}
	}
	return owners, nil
}
