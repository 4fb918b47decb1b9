package worker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// heldMember is the member of the W3C baggage header that names, by hash, the
// keys held along a chain of calls. Apps that propagate baggage to the requests
// that they make, as tracing libraries do, get an error instead of a wait
// without end when such a request comes back to a key that it already holds.
const heldMember = "keyway-held"

// maxHeld bounds how deep calls can nest.
const maxHeld = 32

// addHeld returns a request's baggage with key added to the held ones. It
// fails if key is among them already, or the chain is too long.
func addHeld(baggage []string, key string) (string, error) {
	var memory [64]byte
	member := strconv.AppendUint(append(memory[:0], heldMember+"="...), xxhash.Sum64String(key), 16)
	if len(baggage) == 0 {
		return string(member), nil
	}
	hash := string(member[len(heldMember)+1:])
	var rest []string
	held := hash
	for member := range strings.SplitSeq(strings.Join(baggage, ","), ",") {
		member = strings.TrimSpace(member)
		name, value, _ := strings.Cut(member, "=")
		if strings.TrimSpace(name) != heldMember {
			if member != "" {
				rest = append(rest, member)
			}
			continue
		}
		chain := strings.Split(strings.TrimSpace(value), ".")
		if slices.Contains(chain, hash) {
			return "", fmt.Errorf("%w: %q", ErrNested, key)
		}
		if len(chain) >= maxHeld {
			return "", fmt.Errorf("%w: %d keys are held along this chain of calls, the limit", ErrNested, len(chain))
		}
		held = strings.TrimSpace(value) + "." + hash
	}
	return strings.Join(append(rest, heldMember+"="+held), ","), nil
}
