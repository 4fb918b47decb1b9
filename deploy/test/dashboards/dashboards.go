// Package dashboards reads the dashboards of deploy/grafana.
package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Dashboard is what is used of Grafana's form of a dashboard (schema version 39).
// Another field is an error.
type Dashboard struct {
	UID           string   `json:"uid"`
	Title         string   `json:"title"`
	Tags          []string `json:"tags"`
	SchemaVersion int      `json:"schemaVersion"`
	Editable      bool     `json:"editable"`
	Refresh       string   `json:"refresh"`
	Time          struct{ From, To string }
	Timezone      string `json:"timezone"`
	Templating    struct{ List []Variable }
	Annotations   struct{ List []json.RawMessage }
	Panels        []Panel `json:"panels"`
}

// Variable is a choice at the top of a dashboard.
type Variable struct {
	Name       string     `json:"name"`
	Type       string     `json:"type"`
	Datasource Datasource `json:"datasource"`
	Query      struct {
		Query string `json:"query"`
		RefID string `json:"refId"`
	} `json:"query"`
	IncludeAll bool                         `json:"includeAll"`
	Multi      bool                         `json:"multi"`
	AllValue   string                       `json:"allValue"`
	Current    struct{ Text, Value string } `json:"current"`
	Refresh    int                          `json:"refresh"`
}

// Panel is a graph, or the heading of a row.
type Panel struct {
	ID          int        `json:"id"`
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Collapsed   bool       `json:"collapsed"`
	Datasource  Datasource `json:"datasource"`
	GridPos     Position   `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string  `json:"unit"`
			Min  float64 `json:"min"`
		} `json:"defaults"`
		Overrides []json.RawMessage `json:"overrides"`
	} `json:"fieldConfig"`
	Options struct {
		Legend  struct{ DisplayMode, Placement string } `json:"legend"`
		Tooltip struct{ Mode, Sort string }             `json:"tooltip"`
	} `json:"options"`
	Targets []Target          `json:"targets"`
	Panels  []json.RawMessage `json:"panels"`
}

// Position is where a panel is, in a grid of 24 columns.
type Position struct{ H, W, X, Y int }

// Target is a query of a panel.
type Target struct {
	RefID        string     `json:"refId"`
	Datasource   Datasource `json:"datasource"`
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat"`
}

// Datasource says where data come from.
type Datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

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
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&all[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return all, nil
}
