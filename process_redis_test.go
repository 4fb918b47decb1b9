//go:build keyway_redis

package keyway_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/keyway-go/keyway"
)

// With the build tag keyway_redis a program links no store of its own, and says so where it is
// given none.
func TestWithoutEmbeddedStore(t *testing.T) {
	deps, err := exec.Command("go", "list", "-deps", "-tags", "keyway_redis", ".").Output()
	if err != nil || strings.Contains(string(deps), "miniredis") {
		t.Errorf("package keyway depends on miniredis: %v", err)
	}
	if n, err := keyway.Start(t.Context(), keyway.Config{}); n != nil || !errors.Is(err, keyway.ErrConfig) || !strings.Contains(err.Error(), "keyway_redis") {
		t.Errorf("a node with no store: %v", err)
	}
}
