package gossip_test

import (
	"bytes"
	"testing"
)

// Members with the same keys have the same secrets, in the order of the keys, which
// differ by purpose and tell nothing of the keys.
func TestSecrets(t *testing.T) {
	k1, k2 := []byte("0123456789abcdef"), []byte("0123456789abcdefghijklmnopqrstuv")
	of := func(name, purpose string, keys ...[]byte) [][]byte {
		cfg := worker(name)
		cfg.Keyring = keys
		return start(t, cfg).Secrets(purpose)
	}
	ab, ba, plain := of("a", "x", k1, k2), of("b", "x", k2, k1), of("c", "x")
	if len(plain) != 0 || len(ab) != 2 || !bytes.Equal(ab[0], ba[1]) || !bytes.Equal(ab[1], ba[0]) || bytes.Equal(ab[0], ab[1]) {
		t.Errorf("%x, %x, %x", plain, ab, ba)
	}
	if y := of("d", "y", k1, k2); bytes.Equal(y[0], ab[0]) || len(y[0]) != 32 || bytes.Contains(ab[0], k1[:4]) {
		t.Errorf("%x, %x", ab, y)
	}
}
