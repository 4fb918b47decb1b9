package trial

import (
	"strings"
	"testing"
)

// A site whose store cannot be made says why, and is closed.
func TestCloseWithoutStore(t *testing.T) {
	nodes, err := NewNodes(t.TempDir(), "redis", 3)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSite(t.TempDir(), 0)
	defer s.Close()
	if s.Store, err = NewRedis(nodes, ""); err == nil || !strings.Contains(err.Error(), "the working directory has to be internal/cmd/chaos") {
		t.Errorf("in another directory: %v", err)
	}
}
