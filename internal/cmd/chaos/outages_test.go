package main

import (
	"reflect"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// happened is a fault of a kind. A worker that was killed is back when it ends.
func happened(name string, begin, end float64) *trial.Fault {
	f := &trial.Fault{Kind: trial.Starved, Begin: seconds(begin), End: seconds(end), Lasts: seconds(end - begin)}
	for _, k := range new(stage).plan().Kinds {
		if k.Name == name {
			f.Kind, f.Host = k, "w1"
		}
	}
	return f
}

func TestOutages(t *testing.T) {
	const ttl = 10 * time.Second // each lasts for 11.5 s
	lost := happened("lose-store", 100, 101)
	for _, tt := range []struct {
		name   string
		faults []*trial.Fault
		want   []float64 // begin and end of each
	}{
		{"nothing", nil, nil},
		{"kill", []*trial.Fault{happened("kill-worker", 100, 103)}, []float64{100, 111.5}},
		{"data loss", []*trial.Fault{lost}, []float64{100, 112.5}},
		{"planned moves", []*trial.Fault{happened("add-worker", 100, 101), happened("restart-worker", 102, 103)}, nil},
		{"pause without a quarantine", []*trial.Fault{happened("pause-worker", 100, 115)}, []float64{100, 111.5}},
		{"takeover in a quarantine", []*trial.Fault{lost, happened("kill-worker", 105, 120)}, []float64{100, 116.5}},
		{"quarantine in a takeover", []*trial.Fault{happened("kill-worker", 95, 140), lost}, []float64{95, 112.5}},
		{"one after the other", []*trial.Fault{lost, happened("kill-worker", 113, 114)}, []float64{100, 112.5, 113, 124.5}},
		{"newcomer in a quarantine", []*trial.Fault{lost, happened("add-worker", 109, 120)}, []float64{100, 131.5}},
		{"newcomer after it", []*trial.Fault{lost, happened("add-worker", 113, 114)}, []float64{100, 112.5}},
		{"end of a pause in a quarantine", []*trial.Fault{happened("pause-worker", 90, 105), lost}, []float64{90, 116.5}},
		{"restart in a quarantine", []*trial.Fault{lost, happened("restart-worker", 108, 109)}, []float64{100, 120.5}},
	} {
		var got []float64
		without, _, _ := outages(tt.faults, ttl)
		for _, o := range without {
			got = append(got, o.begin.Seconds(), o.end.Seconds())
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	_, forgotten, busy := outages([]*trial.Fault{lost, happened("starved-machine", 7, 8)}, ttl)
	if !reflect.DeepEqual(forgotten, []outage{{seconds(100), seconds(124)}}) || !reflect.DeepEqual(busy, []outage{{seconds(7), seconds(8)}}) {
		t.Errorf("locks may be forgotten in %v, and lost in %v", forgotten, busy)
	}
}
