package placement

import (
	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/ring"
)

const partitions = 4096

// cluster returns the members of a table and its owners, without loads.
func cluster(table *ring.Table) (c placement.Cluster) {
	index := map[string]int32{}
	for i, name := range table.Members() {
		c.Workers = append(c.Workers, placement.Worker{Name: name, Weight: 1})
		index[name] = int32(i)
	}
	for p := range partitions {
		name, _ := table.Owner(p)
		c.Ring = append(c.Ring, index[name])
	}
	return c
}

// ownersOf returns the name of each partition's owner.
func ownersOf(c placement.Cluster) []string {
	owners := make([]string, len(c.Ring))
	for p, w := range c.Ring {
		owners[p] = c.Workers[w].Name
	}
	there := map[string]bool{}
	for _, w := range c.Workers {
		there[w.Name] = true
	}
	for _, p := range c.Placed {
		if there[p.Worker] {
			owners[p.Partition] = p.Worker
		}
	}
	return owners
}

// sums returns the load of each worker with these placements.
func sums(c placement.Cluster, placed []placement.Placement) []float64 {
	c.Placed = placed
	byName := map[string]float64{}
	for p, name := range ownersOf(c) {
		byName[name] += c.Loads[p]
	}
	all := make([]float64, len(c.Workers))
	for i, w := range c.Workers {
		all[i] = byName[w.Name]
	}
	return all
}

// moved returns the share of the load whose owner differs. Without owners before, it is none.
func moved(before, after []string, loads []float64) float64 {
	share, total := 0.0, 0.0
	for p, l := range loads {
		total += l
		if before != nil && before[p] != after[p] {
			share += l
		}
	}
	return share / total
}
