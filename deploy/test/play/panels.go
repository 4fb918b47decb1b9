package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/keyway-go/keyway/deploy/test/dashboards"
)

// ofLocks begins the UIDs of dashboards of locks, which nobody takes here: their queries need not get data.
const ofLocks = "keyway-lock"

// askPanels sends the queries of all panels of the dashboards to Prometheus, and
// fails if Prometheus refuses one, or if one of requests gets no data.
func (s *stack) askPanels(ctx context.Context) error {
	all, err := dashboards.Load(filepath.Join(s.dir, "grafana", "dashboards"))
	if err != nil {
		return err
	}
	for _, d := range all {
		queries := 0
		for _, p := range d.Panels {
			queries += len(p.Targets)
		}
		if err := await(ctx, time.Minute, func(ctx context.Context) error { return s.ask(ctx, &d) }); err != nil {
			return err
		}
		fmt.Fprintf(s.out, "  dashboard %q: each of its %d queries gets data, unless it is of locks\n", d.Title, queries)
	}
	return nil
}

// ask sends the queries of a dashboard. Its error names the queries that failed, or wrongly got no data.
func (s *stack) ask(ctx context.Context, d *dashboards.Dashboard) error {
	var empty []error
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			n, err := s.query(ctx, t.Query())
			if err == nil && n == 0 && !strings.HasPrefix(d.UID, ofLocks) {
				err = errors.New("no data")
			}
			if err != nil {
				empty = append(empty, fmt.Errorf("dashboard %q, %s: %s: %w", d.Title, p.Title, t.Query(), err))
			}
		}
	}
	return errors.Join(empty...)
}

// query returns how many series a query gets from Prometheus.
func (s *stack) query(ctx context.Context, expr string) (series int, err error) {
	_, body, err := get(ctx, "http://"+s.prometheus+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		return 0, err
	}
	var said struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return 0, err
	}
	if said.Status != "success" {
		return 0, errors.New(said.Error)
	}
	return len(said.Data.Result), nil
}
