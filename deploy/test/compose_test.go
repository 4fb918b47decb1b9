package test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// drainTimeout is the default of --drain-timeout.
const drainTimeout = 25 * time.Second

func loadCompose(t *testing.T, files ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions(files, cli.WithDotEnv, cli.WithConsistency(true))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// Every process of a member has the time to leave in order, runs without rights, and
// finds what the repository has.
func TestCompose(t *testing.T) {
	testCompose(t, 8, "../compose.yaml")
	testCompose(t, 6, "../compose.yaml", "../compose.door.yaml") // without routers
}

func testCompose(t *testing.T, want int, files ...string) {
	members := 0
	for name, service := range loadCompose(t, files...).Services {
		for _, v := range service.Volumes {
			if v.Type == types.VolumeTypeBind {
				if found, err := filepath.Glob(v.Source); err != nil || len(found) == 0 {
					t.Errorf("%s mounts %s, which is not there", name, v.Source)
				}
			}
		}
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %s to other machines", name, port.Published)
			}
		}
		if !strings.HasPrefix(service.Image, "keyway/") {
			continue
		}
		members++
		if service.StopGracePeriod == nil || time.Duration(*service.StopGracePeriod) <= drainTimeout {
			t.Errorf("%s has %v to end, want more than %s", name, service.StopGracePeriod, drainTimeout)
		}
		if !service.ReadOnly || len(service.CapDrop) != 1 || service.CapDrop[0] != "ALL" || len(service.SecurityOpt) == 0 {
			t.Errorf("%s has rights that it does not need", name)
		}
	}
	if members != want {
		t.Errorf("%v: %d routers, workers and apps, want %d", files, members, want)
	}
}
