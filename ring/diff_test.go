package ring

// Move is a partition whose owner differs between two tables. From or To is
// empty where there is no owner.
type Move struct {
	Partition int
	From, To  string
}

// Diff returns the partitions whose owners differ between two tables of one
// cluster, in rising order. A nil table owns nothing.
func Diff(before, after *Table) []Move {
	var none Table
	if before == nil {
		before = &none
	}
	if after == nil {
		after = &none
	}
	var moves []Move
	for p := range max(len(before.owners), len(after.owners)) {
		from, _ := before.Owner(p)
		to, _ := after.Owner(p)
		if from != to {
			moves = append(moves, Move{Partition: p, From: from, To: to})
		}
	}
	return moves
}
