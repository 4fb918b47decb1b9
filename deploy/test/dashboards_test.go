package test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/deploy/test/dashboards"
	"sigs.k8s.io/yaml"
)

// Dashboards are such as Grafana draws, of the data source that is provisioned, and
// ask for metrics, labels and values that docs/metrics.md has. That Prometheus takes
// their queries, and those of requests get data, is seen by make deploy-test.
func TestDashboards(t *testing.T) {
	all, err := dashboards.Load("../grafana/dashboards")
	if err != nil {
		t.Fatal(err)
	}
	var provisioned struct {
		Datasources []dashboards.Datasource
	}
	if err := yaml.Unmarshal([]byte(read(t, "../grafana/provisioning/datasources/prometheus.yaml")), &provisioned); err != nil {
		t.Fatal(err)
	}
	source := provisioned.Datasources[0]
	documented := read(t, "../../docs/metrics.md")
	uids := make(map[string]bool)
	for _, d := range all {
		if d.Title == "" || d.SchemaVersion == 0 || uids[d.UID] {
			t.Errorf("%q has no title or schema version, or the uid %q of another one", d.Title, d.UID)
		}
		uids[d.UID] = true
		ids, end := make(map[int]bool), dashboards.Position{}
		for _, p := range d.Panels {
			at := d.Title + ": " + p.Title
			if ids[p.ID] || p.Title == "" {
				t.Errorf("%s has no title, or the id of another panel", at)
			}
			ids[p.ID] = true
			if g := p.GridPos; g.X < 0 || g.X+g.W > 24 || g.Y < end.Y || g.Y == end.Y && g.X < end.X {
				t.Errorf("%s lies over another panel, or outside", at)
			}
			end = dashboards.Position{X: p.GridPos.X + p.GridPos.W, Y: p.GridPos.Y}
			if p.Type == "row" {
				continue
			}
			if p.Type != "timeseries" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 || p.Datasource != source {
				t.Errorf("%s is no time series with a unit and a query to %v", at, source)
			}
			for _, target := range p.Targets {
				if target.LegendFormat == "" || target.Datasource != source {
					t.Errorf("%s has a query without a legend, or to another source", at)
				}
				name := metric(target.Expr)
				if name == "" {
					continue
				}
				_, row, found := strings.Cut(documented, "| `"+name+"` |")
				if row, _, _ = strings.Cut(row, "\n"); !found {
					t.Errorf("%s asks for %s, which docs/metrics.md does not have", at, name)
				}
				for _, used := range labels.FindAllStringSubmatch(target.Expr, -1) {
					for label := range strings.SplitSeq(used[1]+used[2], ", ") {
						_, values, listed := strings.Cut(row, "`"+label+"`:")
						if label != "instance" && label != "le" && (!strings.Contains(row, "`"+label+"`") || listed && !strings.Contains(values, used[3])) {
							t.Errorf("%s asks for the label %s %q of %s, which docs/metrics.md does not have", at, label, used[3], name)
						}
					}
				}
			}
		}
	}
}

// labels finds the labels that a query sums by, or whose value it wants.
var labels = regexp.MustCompile(`by \(([\w, ]+)\)|(\w+)="(\w[\w-]*)"`)

// metric returns the name of the metric of a query that has one of Keyway.
func metric(expr string) string {
	_, name, ok := strings.Cut(expr, "keyway_")
	if !ok {
		return ""
	}
	name, _, _ = strings.Cut(name, "{")
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		name = strings.TrimSuffix(name, part)
	}
	return "keyway_" + name
}
