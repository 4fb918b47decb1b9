package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func happened(k kind, process string, begin, end float64) *event {
	worker, _, _ := strings.Cut(process, "#")
	return &event{act: act{Kind: k, Worker: worker}, process: process, begin: seconds(begin), end: seconds(end)}
}

func TestOutages(t *testing.T) {
	const ttl = 10 * time.Second // each lasts for 11.5 s
	lost := happened(redisLoss, "", 100, 101)
	killed, left, gone := happened(kill, "w1#1", 100, 100), happened(leave, "w2#1", 101, 102), happened(leave, "w3#1", 111, 112)
	tests := []struct {
		name   string
		events []*event
		want   []float64 // begin and end of each
	}{
		{"nothing", nil, nil},
		{"kill", []*event{happened(kill, "w1#1", 100, 100.1)}, []float64{100, 111.5}},
		{"data loss", []*event{lost}, []float64{100, 112.5}},
		{"planned moves", []*event{happened(join, "w1#1", 100, 101), happened(leave, "w1#1", 102, 103)}, nil},
		{"pause without a quarantine", []*event{happened(pause, "w1#1", 100, 115)}, []float64{100, 111.5}},
		{"takeover in a quarantine", []*event{lost, happened(kill, "w1#1", 105, 105)}, []float64{100, 116.5}},
		{"quarantine in a takeover", []*event{happened(kill, "w1#1", 95, 95), lost}, []float64{95, 112.5}},
		{"one after the other", []*event{lost, happened(kill, "w1#1", 113, 113)}, []float64{100, 112.5, 113, 124.5}},
		{"start in a quarantine", []*event{lost, happened(join, "w1#1", 109, 120)}, []float64{100, 120.5}},
		{"start after it", []*event{lost, happened(join, "w1#1", 113, 114)}, []float64{100, 112.5}},
		{"end of a pause in a quarantine", []*event{happened(pause, "w1#1", 90, 105), lost}, []float64{90, 116.5}},
		{"restart in a quarantine", []*event{lost, happened(restart, "w1#1", 108, 108)}, []float64{100, 120.5}},
		{"one stays long enough", []*event{killed, left, happened(leave, "w3#1", 112, 113)}, []float64{100, 111.5}},
		{"none stays long enough", []*event{killed, left, gone}, []float64{100, 121.5}},
		{"nor does one that came later", []*event{killed, left, happened(join, "w4#1", 103, 104), gone}, []float64{100, 121.5}},
		{"one that was starting stays", []*event{happened(join, "w4#1", 99, 101), killed, left, gone}, []float64{100, 121.5}},
		{"one that was ready stays", []*event{happened(join, "w4#1", 98, 99), killed, left, gone}, []float64{100, 111.5}},
		{"one that had been paused stays", []*event{happened(pause, "w3#1", 70, 85), killed, left}, []float64{70, 81.5, 100, 111.5}},
		{"one that is paused does not", []*event{happened(pause, "w3#1", 84, 101), killed, left}, []float64{84, 95.5, 100, 121.5}},
		{"one that had been restarted stays", []*event{happened(restart, "w3#1", 80, 80), killed, left}, []float64{80, 91.5, 100, 111.5}},
		{"data loss without anybody who stays", []*event{lost, left, happened(leave, "w1#1", 104, 105), happened(leave, "w3#1", 112, 113)}, []float64{100, 122.5}},
		{"short within long", []*event{happened(redisRestart, "", 100, 110), happened(kill, "w1#1", 101, 101)}, []float64{100, 121.5}},
	}
	for _, tt := range tests {
		var got []float64
		for _, o := range outages(tt.events, ttl) {
			got = append(got, o.begin.Seconds(), o.end.Seconds())
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestClassifyHeldInVain(t *testing.T) {
	paused, lost := happened(pause, "w1#1", 100, 115), happened(redisLoss, "", 105, 106)
	both := []*event{paused, lost} // one outage, until 126.5
	thrice := []*event{lost, happened(redisRestart, "", 110, 111), happened(redisRestart, "", 120, 121)}
	held := func(send, recv float64) trial.Request {
		return trial.Request{Key: "k", Send: seconds(send), Recv: seconds(recv), Status: 503, Retry: true}
	}
	noRetry := held(101, 117)
	noRetry.Retry = false
	broken := held(101, 117)
	broken.Status = 502
	tests := []struct {
		name    string
		events  []*event
		ran     float64 // when the key last was
		r       trial.Request
		allowed bool
	}{
		{"for as long as the router holds", both, 99, held(101, 117), true},
		{"when it had waited at the paused worker", both, 99, held(99, 126), true},
		{"without a hint to come again", both, 99, noRetry, false},
		{"and broken", both, 99, broken, false},
		{"for less", both, 99, held(103, 117), false},
		{"from before the outage", both, 90, held(98, 114), false},
		{"until after it", both, 99, held(110, 127), false},
		{"by a pause alone", []*event{paused}, 99, held(100.5, 116), false},
		{"by a data loss alone", []*event{lost}, 99, held(105, 121), false},
		{"by Redis alone, whatever happens to it", thrice, 99, held(106, 122), false},
		{"by Redis after a change of the workers", append([]*event{happened(join, "w2#1", 98, 99)}, thrice...), 104, held(106, 122), true},
		{"by Redis when all had settled", append([]*event{happened(join, "w2#1", 85, 86)}, thrice...), 104, held(106, 122), false},
	}
	for _, tt := range tests {
		seen := trial.Record{Keys: map[string]*trial.Counter{"k": {History: []*trial.Execution{{Request: 1, Worker: "w1#1", Begin: seconds(tt.ran)}}}}}
		tt.r.Number = 2
		j := newJudge(config{TTL: 10 * time.Second, Hold: 15 * time.Second}, tt.events, seen, nil, nil)
		if v := j.classify(&tt.r); v.allowed != tt.allowed {
			t.Errorf("%s: %q, allowed %v", tt.name, v.cause, v.allowed)
		}
	}
}
