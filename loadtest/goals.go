//go:build linux

package main

import "github.com/keyway-go/keyway/loadtest/internal/report"

// aims are what Keyway wants to reach with membership that may change safely,
// against any-worker load balancing with a plain Redis lock, and against nginx
// by key with a local mutex, which is unsafe when members change.
var aims = []struct {
	scene, rival, what string
	figure             report.Figure
	atMost             bool
	want               float64
}{
	{"uniform", "plain", "requests/s of a plain Redis lock", report.PerSecond, false, 2.7},
	{"uniform", "plain", "CPU per request of a plain Redis lock", report.CPU, true, 0.35},
	{"uniform", "hash", "requests/s of nginx by key + local mutex", report.PerSecond, false, 1.3},
	{"zipf", "plain", "requests/s of a plain Redis lock", report.PerSecond, false, 3.5},
	{"zipf", "hash", "requests/s of nginx by key + local mutex", report.PerSecond, false, 1.3},
	{"zipf", "plain", "p99.9 of a plain Redis lock", report.P999, true, 0.1},
	{"hot", "plain", "requests/s of a plain Redis lock", report.PerSecond, false, 13},
	{"hot", "hash", "requests/s of nginx by key + local mutex", report.PerSecond, false, 1.3},
	{"hot", "plain", "p99.9 of a plain Redis lock", report.P999, true, 0.1},
}

// goals compares Keyway with the aims for which there are rows.
func goals(r *report.Report) (all []report.Goal) {
	if r.Settings.Rate > 0 || r.Settings.Events != "" {
		return nil
	}
	for _, a := range aims {
		s := r.Scene(a.scene)
		if s == nil {
			continue
		}
		keyway, rival := s.Row("keyway"), s.Row(a.rival)
		if keyway == nil || rival == nil {
			continue
		}
		all = append(all, report.Goal{Scene: a.scene, What: a.what, AtMost: a.atMost, Want: a.want, Got: keyway.Over(rival, a.figure)})
	}
	return all
}
