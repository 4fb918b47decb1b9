package ring

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"sort"
	"strconv"
)

// point is a place of a member on the hash circle.
type point struct {
	hash   uint64
	member uint16 // index of the sorted members
}

// place returns the owner of each partition, as an index of the sorted set. The partitions
// choose one after the other: each takes the first point at or after its own hash whose
// member has room. There always is one, since the bound on a load is at least the mean.
//
// The owners are those of github.com/buraksezer/consistent, which sorts the circle once
// for each member. Where points of two members coincide, the later name comes first.
func place(cfg Config, hash func([]byte) uint64, set []string) []uint16 {
	points := make([]point, 0, len(set)*cfg.ReplicationFactor)
	key := make([]byte, 0, 128)
	for m, name := range set {
		for i := range cfg.ReplicationFactor {
			key = append(strconv.AppendInt(key[:0], int64(i), 10), ':')
			key = append(key, name...)
			points = append(points, point{hash(key), uint16(m)})
		}
	}
	slices.SortFunc(points, func(a, b point) int {
		switch {
		case a.hash < b.hash:
			return -1
		case a.hash > b.hash:
			return 1
		}
		return cmp.Compare(b.member, a.member)
	})
	most := int(min(float64(cfg.Partitions), math.Ceil(float64(cfg.Partitions)/float64(len(set))*cfg.Load)))
	owners, loads := make([]uint16, cfg.Partitions), make([]int, len(set))
	for p := range owners {
		key = binary.LittleEndian.AppendUint64(key[:0], uint64(p))
		h := hash(key)
		at := sort.Search(len(points), func(i int) bool { return points[i].hash >= h })
		for ; ; at++ {
			if at == len(points) {
				at = 0
			}
			if m := points[at].member; loads[m] < most {
				owners[p] = m
				loads[m]++
				break
			}
		}
	}
	return owners
}
