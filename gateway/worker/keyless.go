package worker

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/policy"
)

// A request whose route holds no key runs as an execution of a name of its own, in
// the partition of its key or, without a key, in any that the worker serves. So it is
// admitted, bounded, cancelled and waited for like all others, and in nobody's way. A
// name is a NUL, a number, another NUL and the key: no key has a NUL.

// keyless reports whether the caller's route holds no key.
func (how *asking) keyless() bool {
	return how.policy != nil && (how.policy.Mode == policy.Affinity || how.policy.Mode == policy.Unkeyed)
}

// unkeyed reports whether the caller's route has requests without a key.
func (how *asking) unkeyed() bool { return how.policy != nil && how.policy.Mode == policy.Unkeyed }

// batches reports whether requests of the caller's route may go to an app together.
func (how *asking) batches() bool {
	return how.policy == nil || how.policy.Mode == policy.Auto || how.policy.Mode == policy.Batch
}

// placeOf returns the partition in which a caller with that key is admitted, and
// under which name.
func (k *keys) placeOf(key string, how *asking) (p *partition, name string, err error) {
	if !how.unkeyed() {
		if err := gateway.CheckKey(key); err != nil {
			return nil, "", err
		}
		p = k.of(key)
		if !how.keyless() {
			return p, key, nil
		}
	}
	n := k.keyless.Add(1)
	for i := 0; p == nil && i < len(k.parts); i++ {
		if other := &k.parts[(int(n%uint64(len(k.parts)))+i)%len(k.parts)]; other.open.Load() {
			p = other
		}
	}
	if p == nil {
		return nil, "", fmt.Errorf("%w: worker %s serves no partition", gateway.ErrUnavailable, k.cfg.Name)
	}
	return p, "\x00" + strconv.FormatUint(n, 36) + "\x00" + key, nil
}

// isKeyless reports whether a name is that of a request which holds no key.
func isKeyless(name string) bool { return strings.HasPrefix(name, "\x00") }

// keyOf returns the key of an execution of that name, "" for none.
func keyOf(name string) string {
	if !isKeyless(name) {
		return name
	}
	_, key, _ := strings.Cut(name[1:], "\x00")
	return key
}

// carried returns the baggage of a request for key that it goes on with.
func (how *asking) carried(baggage []string, key string) (string, error) {
	if how.keyless() {
		return strings.Join(baggage, ","), nil
	}
	return addHeld(baggage, key)
}
