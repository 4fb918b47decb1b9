package test

import (
	"os/exec"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// alertNames returns the names of the alerts.
func alertNames(t *testing.T) (names []string) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct{ Alert string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../prometheus/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert)
		}
	}
	return names
}

// Each alert fires when it should and is silent when it should be.
func TestAlerts(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}, {"check", "config", "--syntax-only", "prometheus.yaml"}} {
		cmd := exec.CommandContext(t.Context(), "promtool", args...)
		cmd.Dir = "../prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v (Debian: apt-get install prometheus)\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Each alert is tested both ways, has an entry in the runbook, and the runbook has
// no others.
func TestAlertsAreTestedAndExplained(t *testing.T) {
	tests, runbook := read(t, "../prometheus/alerts_test.yaml"), read(t, "../../docs/runbook.md")
	alerts := alertNames(t)
	for _, name := range alerts {
		for _, want := range []string{"name: " + name + " fires\n", "name: " + name + " is silent\n"} {
			if !strings.Contains(tests, want) {
				t.Errorf("alerts_test.yaml has no test with %q", strings.TrimSpace(want))
			}
		}
		if !strings.Contains(runbook, "\n## "+name+"\n") {
			t.Errorf("docs/runbook.md has no entry for %s", name)
		}
		if want := "docs/runbook.md#" + strings.ToLower(name) + "\n"; !strings.Contains(read(t, "../prometheus/alerts.yaml"), want) {
			t.Errorf("%s does not lead to %s", name, strings.TrimSpace(want))
		}
	}
	if n := strings.Count(runbook, "\n## "); n != len(alerts) || n == 0 {
		t.Errorf("the runbook has %d entries for %d alerts", n, len(alerts))
	}
}
