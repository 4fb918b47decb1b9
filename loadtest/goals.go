//go:build linux

package main

import "github.com/keyway-go/keyway/loadtest/internal/report"

// aims are what Keyway wants to reach with membership that may change safely,
// against any-worker load balancing with a plain Redis lock, and against nginx
// by key with a local mutex, which is unsafe when members change; and its lock service
// against other locks.
var aims = []struct {
	scene, ours, rival, what string
	figure                   report.Figure
	atMost                   bool
	want                     float64
}{
	{"uniform", report.Keyway, "plain", "requests/s of a plain Redis lock", report.PerSecond, false, 2.7},
	{"uniform", report.Keyway, "plain", "CPU per request of a plain Redis lock", report.CPU, true, 0.35},
	{"uniform", report.Keyway, "hash", "requests/s of nginx by key + local mutex", report.PerSecond, false, 1.3},
	{"zipf", report.Keyway, "plain", "requests/s of a plain Redis lock", report.PerSecond, false, 3.5},
	{"zipf", report.Keyway, "hash", "requests/s of nginx by key + local mutex", report.PerSecond, false, 1.3},
	{"zipf", report.Keyway, "plain", "p99.9 of a plain Redis lock", report.P999, true, 0.1},
	{"hot", report.Keyway, "plain", "requests/s of a plain Redis lock", report.PerSecond, false, 13},
	{"hot", report.Keyway, "hash", "requests/s of nginx by key + local mutex", report.PerSecond, false, 1.3},
	{"hot", report.Keyway, "plain", "p99.9 of a plain Redis lock", report.P999, true, 0.1},
	{"uniform", lockService, "etcd", "uncontended requests/s of etcd's lock", report.PerSecond, false, 5},
	{"uniform", lockService, "redislock", "uncontended requests/s of bsm/redislock", report.PerSecond, false, 1},
	{"hot", lockService, "etcd", "contended requests/s of etcd's lock", report.PerSecond, false, 10},
	{"hot", lockService, "redislock", "contended requests/s of bsm/redislock", report.PerSecond, false, 10},
	{"hot-stock-postgres", report.Batch, "plain", "decrements/s in batches of a plain Redis lock", report.PerSecond, false, 20},
	{"hot-stock-postgres", report.Batch, "keyway", "decrements/s in batches of one by one", report.PerSecond, false, 10},
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
		ours, rival := s.Row(a.ours), s.Row(a.rival)
		if ours == nil || rival == nil {
			continue
		}
		all = append(all, report.Goal{Scene: a.scene, What: a.what, AtMost: a.atMost, Want: a.want, Got: ours.Over(rival, a.figure)})
	}
	return all
}
