package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/deploy/test/manifests"
)

// mostChanges is how many lines of a Deployment and its Service may change for doors.
const mostChanges = 15

// The diff of docs/deploy.md makes deploy/kubernetes/door of a Deployment and a Service without Keyway.
func TestDiffOfDoors(t *testing.T) {
	_, diff, _ := strings.Cut(read(t, "../../docs/deploy.md"), "```diff\n")
	diff, _, _ = strings.Cut(diff, "```\n")
	changes, before := 0, t.TempDir()
	for _, file := range regexp.MustCompile(`(?m)^--- `).Split(diff, -1)[1:] {
		name, hunks, _ := strings.Cut(file, "\n")
		text := read(t, filepath.Join("../kubernetes/door", name))
		for _, hunk := range strings.Split(hunks, "@@\n")[1:] {
			var old, now strings.Builder
			for line := range strings.Lines(hunk) {
				if line[0] != '+' {
					old.WriteString(line[1:])
				}
				if line[0] != '-' {
					now.WriteString(line[1:])
				}
				if line[0] != ' ' {
					changes++
				}
			}
			if !strings.Contains(text, now.String()) {
				t.Errorf("%s does not have\n%s", name, &now)
			}
			text = strings.Replace(text, now.String(), old.String(), 1)
		}
		if err := os.WriteFile(filepath.Join(before, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if changes == 0 || changes > mostChanges {
		t.Errorf("%d lines change, want 1 to %d", changes, mostChanges)
	}
	objects, err := manifests.Render(before)
	if err != nil {
		t.Fatal(err)
	}
	if pod := objects.Deployments["orders"].Spec.Template; len(pod.Spec.Containers) != 1 || pod.Labels[partOf] != "" || len(objects.Services) != 1 {
		t.Errorf("before the diff: %+v", pod)
	}
}
