package ownership

import (
	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/ring"
)

// viewInput returns view as the input of a machine. sameRing says that its ring is that of the view
// before.
func viewInput(view *ring.View, before handoff.View, sameRing bool) handoff.View {
	in := handoff.View{Digest: view.Digest}
	for _, m := range view.Members {
		in.Floor = max(in.Floor, m.Epoch)
	}
	index := make(map[string]int32)
	for _, m := range view.Workers() {
		index[m.Incarnation] = int32(len(in.Workers))
		in.Workers = append(in.Workers, handoff.Peer{Incarnation: m.Incarnation, View: m.View})
	}
	if len(in.Workers) == 0 {
		return in
	}
	if sameRing {
		in.Owners = before.Owners
		return in
	}
	in.Owners = make([]int32, view.Table.Partitions())
	for p := range in.Owners {
		in.Owners[p] = -1
		if m, ok := view.Owner(p); ok {
			in.Owners[p] = index[m.Incarnation]
		}
	}
	return in
}
