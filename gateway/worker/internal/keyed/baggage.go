package keyed

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/keyway-go/keyway/gateway"
)

// heldMember is the member of the W3C baggage header that has the hashes of the keys held along a
// chain of calls. Some apps propagate baggage to their own requests, as tracing libraries do. When
// such a request comes back to a key that its chain holds, it gets an error instead of an endless
// wait.
const heldMember = "keyway-held"

// AddHeld returns a request's baggage with key added to the held ones. It
// fails if key is among them already, or the chain is too long.
func AddHeld(baggage []string, key string) (string, error) {
	if len(baggage) == 0 {
		var memory [32]byte
		return string(appendHash(append(memory[:0], heldMember+"="...), key)), nil
	}
	hash := HashOf(key)
	rest, held := SplitBaggage(baggage)
	if i := slices.Index(held, hash); i >= 0 {
		return "", fmt.Errorf("%w: %q is key %d of the %d that the chain holds (hashes %s)", gateway.ErrNested, key, i+1, len(held), strings.Join(held, ", "))
	}
	if len(held) >= maxHeld {
		return "", fmt.Errorf("%w: this chain of calls holds %d keys, the limit", gateway.ErrNested, len(held))
	}
	return joinBaggage(rest, append(held, hash)), nil
}

// Carried returns the baggage with which a request for key is sent on.
func (how *Asking) Carried(baggage []string, key string) (string, error) {
	if how.keyless() {
		return strings.Join(baggage, ","), nil
	}
	return AddHeld(baggage, key)
}

// Baggage returns baggage with the keys added that are held along ctx.
func Baggage(ctx context.Context, baggage []string) []string {
	var chain []*Context // the innermost first
	for c := Innermost(ctx); c != nil; c = Innermost(c.parent) {
		if !IsKeyless(c.key) {
			chain = append(chain, c)
		}
	}
	if len(chain) == 0 {
		return baggage
	}
	rest, held := SplitBaggage(baggage)
	for _, c := range slices.Backward(chain) {
		_, carried := SplitBaggage([]string{c.baggage})
		own, holds := HashOf(c.key), c.holds()
		for _, hash := range append(carried, own) {
			if (hash != own || holds) && !slices.Contains(held, hash) {
				held = append(held, hash)
			}
		}
	}
	return []string{joinBaggage(rest, held)}
}

// heldAlong returns an error if an execution that ctx belongs to answers a request of a chain that holds key: to wait
// for key is to wait for itself.
func heldAlong(ctx context.Context, key string) error {
	for c := Innermost(ctx); c != nil; c = Innermost(c.parent) {
		if _, held := SplitBaggage([]string{c.baggage}); slices.Contains(held, HashOf(key)) && c.holds() {
			return fmt.Errorf("%w: %q is asked for within %s", gateway.ErrNested, key, chainOf(ctx))
		}
	}
	return nil
}

// HashOf returns what stands for a key in baggage.
func HashOf(key string) string { return string(appendHash(nil, key)) }

func appendHash(b []byte, key string) []byte {
	return strconv.AppendUint(b, xxhash.Sum64String(key), 16)
}

// SplitBaggage returns the members of a request's baggage that are not Keyway's, and
// the hashes of the keys that are held.
func SplitBaggage(baggage []string) (rest, held []string) {
	for _, list := range baggage {
		for member := range strings.SplitSeq(list, ",") {
			member = strings.TrimSpace(member)
			name, value, _ := strings.Cut(member, "=")
			if strings.TrimSpace(name) != heldMember {
				if member != "" {
					rest = append(rest, member)
				}
				continue
			}
			for hash := range strings.SplitSeq(strings.TrimSpace(value), ".") {
				if hash != "" {
					held = append(held, hash)
				}
			}
		}
	}
	return rest, held
}

func joinBaggage(rest, held []string) string {
	return strings.Join(append(rest, heldMember+"="+strings.Join(held, ".")), ",")
}
