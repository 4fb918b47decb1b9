package gossip

import (
	"fmt"
	"strings"

	"github.com/keyway-go/keyway/ring"
)

// nodeName is the name of a member in memberlist. The boot id makes a
// restarted process a new node, whatever its name and address.
func nodeName(name, boot string) string { return name + "@" + boot }

func memberName(node string) string {
	if i := strings.LastIndexByte(node, '@'); i >= 0 {
		return node[:i]
	}
	return node
}

// admit decides whether a node may be in the cluster of self, and says in its
// error which setting keeps it out, both values and what to do.
func admit(self ring.Member, ours settings, node, addr string, meta []byte) error {
	md, err := decodeMetadata(meta)
	if name := memberName(node); err == nil && (name == "" || len(name) > nameLimit) {
		err = fmt.Errorf("has a name of %d bytes, want 1 to %d", len(name), nameLimit)
	}
	if err != nil {
		return fmt.Errorf("%w: %q at %s %w; we are %q at %s: run the same version of Keyway on both, or take the address out of --join",
			ErrRefused, memberName(node), addr, err, self.Name, self.Gossip)
	}
	peer := md.member(memberName(node), addr)
	d, differ := ours.compare(md.settings, self.Role == ring.RoleRouter && md.role == ring.RoleRouter)
	if !differ {
		return nil
	}
	return fmt.Errorf("%w: %s differs: %s at %s %q (%s), %s at %s %q (%s): %s", ErrRefused, d.setting,
		d.ours, self.Role, self.Name, self.Gossip, d.theirs, peer.Role, peer.Name, peer.Gossip, d.remedy)
}

type difference struct {
	setting, ours, theirs, remedy string
}

// compare returns the first setting in which two members of one cluster must
// not differ, but do.
func (s settings) compare(t settings, routers bool) (difference, bool) {
	const sameRing = "give all members of a cluster the same ring settings, or this one another --cluster"
	switch {
	case s.cluster != t.cluster:
		return differ("cluster name", "%q", s.cluster, t.cluster, "give both the same --cluster, or do not --join them"), true
	case s.partitions != t.partitions:
		return differ("number of partitions", "%d", s.partitions, t.partitions, sameRing), true
	case s.replicas != t.replicas:
		return differ("replication factor", "%d", s.replicas, t.replicas, sameRing), true
	case s.load != t.load:
		return differ("load", "%g", s.load, t.load, sameRing), true
	case s.ring != t.ring:
		return differ("ring format (digest)", "%016x", s.ring, t.ring, "run the same version of Keyway on both"), true
	case routers && s.keyDigest != 0 && t.keyDigest != 0 && s.keyDigest != t.keyDigest:
		return differ("key source", "%q", s.keySource, t.keySource, "give all routers of a cluster the same --key"), true
	}
	return difference{}, false
}

func differ[T any](setting, format string, ours, theirs T, remedy string) difference {
	return difference{setting, fmt.Sprintf(format, ours), fmt.Sprintf(format, theirs), remedy}
}
