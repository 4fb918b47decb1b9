// Package dashboards reads the dashboards of deploy/grafana.
package dashboards

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Dashboard is what is used of Grafana's form of a dashboard (schema version 39).
type Dashboard struct {
	UID           string
	Title         string
	SchemaVersion int
	Panels        []Panel
}

// Panel is a graph, or the heading of a row.
type Panel struct {
	ID          int
	Type        string
	Title       string
	Datasource  Datasource
	GridPos     Position
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []Target
}

// Position is where a panel is, in a grid of 24 columns.
type Position struct{ H, W, X, Y int }

// Target is a query of a panel.
type Target struct {
	Datasource   Datasource
	Expr         string
	LegendFormat string
}

// Datasource says where data come from.
type Datasource struct{ Type, UID string }

// Query returns what Grafana sends to Prometheus for a target, with all instances
// chosen and steps of 15 s.
func (t *Target) Query() string {
	return strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*").Replace(t.Expr)
}

// Load reads all dashboards in a directory.
func Load(dir string) ([]Dashboard, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no dashboards in %s: %w", dir, err)
	}
	all := make([]Dashboard, len(files))
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &all[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return all, nil
}
