package gossip

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/keyway-go/keyway/ring"
)

// nodeName is the name of a member in memberlist. The boot id makes a restarted process a new node
// even under the same name and address.
func nodeName(name, boot string) string { return name + "@" + boot }

func memberName(node string) string {
	if i := strings.LastIndexByte(node, '@'); i >= 0 {
		return node[:i]
	}
	return node
}

// badName reports whether a member's name is too long, or no label of a metric.
func badName(name string) bool { return name == "" || len(name) > nameLimit || !utf8.ValidString(name) }

// admit decides whether a node may be in the cluster of self. Its error says which setting prevents
// that, both values and what to do. ours has no KeySource: a router with another one is admitted.
func admit(self ring.Member, ours ring.Settings, node, addr string, meta []byte) error {
	md, err := decodeMetadata(meta)
	if name := memberName(node); err == nil && badName(name) {
		err = fmt.Errorf("has a name of %d bytes, want 1 to %d of UTF-8", len(name), nameLimit)
	}
	if err != nil {
		return fmt.Errorf("%w: %q at %s %w; we are %q at %s: run the same version of Keyway on both, or take the address out of --join",
			ErrRefused, memberName(node), addr, err, self.Name, self.Gossip)
	}
	peer := md.member(memberName(node), addr)
	d, differ := ours.CompareDigest(withoutKeys(md.settings), md.digest)
	if !differ {
		return nil
	}
	return refusal(d, self, peer)
}

func refusal(d ring.Difference, self, peer ring.Member) error {
	return fmt.Errorf("%w: %s differs: %s at %s %q (%s), %s at %s %q (%s): %s", ErrRefused, d.Setting,
		d.Ours, self.Role, self.Name, self.Gossip, d.Theirs, peer.Role, peer.Name, peer.Gossip, d.Remedy)
}
