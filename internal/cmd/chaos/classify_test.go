package main

import (
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

func TestClassify(t *testing.T) {
	const later = time.Minute // so that one event has no part in what happens at another
	killed := &event{act: act{Kind: kill, Worker: "w1"}, process: "w1#1", begin: 100, end: 110}
	paused := &event{act: act{Kind: pause, Worker: "w2"}, process: "w2#1", begin: later + 200, end: later + 300}
	lost := &event{act: act{Kind: redisLoss}, begin: later + 400, end: later + 410}
	at := func(worker string, begin time.Duration) *trial.Execution {
		return &trial.Execution{Worker: worker, Begin: begin}
	}
	seen := trial.Record{
		Keys: map[string]*trial.Counter{
			"k1": {History: []*trial.Execution{at("w1#1", 50)}},
			"k2": {History: []*trial.Execution{at("w2#1", 50)}},
		},
	}
	tests := []struct {
		name    string
		r       trial.Request
		x       *trial.Execution
		event   *event
		allowed bool
	}{
		{"ran on the killed worker", trial.Request{Key: "k1", Send: 90, Recv: 115, Status: 502}, at("w1#1", 95), killed, true},
		{"was sent to the app of the killed worker, which read it late", trial.Request{Key: "k1", Send: 90, Recv: 115, Status: 502}, at("w1#1", 110+breakTime), killed, true},
		{"queued at the killed worker", trial.Request{Key: "k1", Send: 90, Recv: 115, Status: 502}, nil, killed, true},
		{"was on its way to a key that had just moved", trial.Request{Key: "k2", Send: 90, Recv: 115, Status: 502}, nil, killed, true},
		{"was elsewhere", trial.Request{Key: "k3", Send: later + 350, Recv: later + 400 + breakTime, Status: 502}, nil, lost, false},
		{"ran elsewhere", trial.Request{Key: "k1", Send: 90, Recv: 115, Status: 502}, at("w2#1", 95), killed, false},
		{"sent before the router had noticed", trial.Request{Key: "k1", Send: 111, Recv: 110 + breakTime, Status: 502}, nil, killed, true},
		{"sent before that, and run elsewhere", trial.Request{Key: "k1", Send: 111, Recv: 115, Status: 502}, at("w2#1", 112), killed, false},
		{"sent before that, and held", trial.Request{Key: "k1", Send: 111, Recv: 115, Status: 503}, nil, killed, false},
		{"sent when it must have noticed", trial.Request{Key: "k1", Send: 111, Recv: 111 + breakTime, Status: 502}, nil, killed, false},
		{"held for too long", trial.Request{Key: "k1", Send: 90, Recv: 115, Status: 503}, nil, killed, false},
		{"no answer at all", trial.Request{Key: "k1", Send: 90, Recv: 115}, nil, killed, false},
		{"ran on the paused worker", trial.Request{Key: "k2", Send: later + 190, Recv: later + 310, Status: 502}, at("w2#1", later+195), paused, true},
		{"was refused for its token", trial.Request{Key: "k2", Send: later + 190, Recv: later + 310, Status: 409}, at("w2#1", later+301), paused, true},
		{"waited at the paused worker", trial.Request{Key: "k2", Send: later + 210, Recv: later + 310, Status: 502}, nil, paused, false},
		{"redis lost its data", trial.Request{Key: "k2", Send: later + 405, Recv: later + 420, Status: 502}, at("w2#1", later+406), lost, false},
		{"before all", trial.Request{Key: "k2", Send: 10, Recv: 20, Status: 503}, nil, nil, false},
	}
	for _, tt := range tests {
		tt.r.Number = 1
		seen.Requests = map[int64]*trial.Execution{}
		if tt.x != nil {
			seen.Requests[1] = tt.x
		}
		j := &judge{events: []*event{killed, paused, lost}, seen: seen}
		if v := j.classify(&tt.r); v.event != tt.event || v.allowed != tt.allowed {
			t.Errorf("%s: %q, event %+v, allowed %v", tt.name, v.cause, v.event, v.allowed)
		}
	}
}

// A killed door breaks off what it has passed on, wherever that runs, and nothing else.
func TestClassifyDoors(t *testing.T) {
	killed := &event{act: act{Kind: kill, Worker: "w1"}, process: "w1#1", begin: 100, end: 110}
	ran := map[int64]*trial.Execution{1: {Worker: "w2#1", Begin: 95}}
	for _, tt := range []struct {
		r              trial.Request
		doors, allowed bool
	}{
		{trial.Request{Send: 90, Recv: 115, Status: 502}, true, true},
		{trial.Request{Send: 90, Recv: 115, Status: 502}, false, false},
		{trial.Request{Send: 90, Recv: 111 + breakTime, Status: 502}, true, false},
		{trial.Request{Send: 111, Recv: 115, Status: 502}, true, false},
		{trial.Request{Send: 90, Recv: 115, Status: 503}, true, false},
	} {
		tt.r.Number = 1
		j := &judge{events: []*event{killed}, seen: trial.Record{Requests: ran}, doors: tt.doors}
		if v := j.classify(&tt.r); v.allowed != tt.allowed {
			t.Errorf("%+v, doors %v: %q, allowed %v", tt.r, tt.doors, v.cause, v.allowed)
		}
	}
}

func TestClassifyCuts(t *testing.T) {
	const at = time.Minute
	ran := &trial.Execution{Request: 1, Worker: "w1#1"}
	tests := []struct {
		name    string
		r       trial.Request
		x       *trial.Execution
		allowed bool
	}{
		{"ran behind the link", trial.Request{Send: at - 5, Recv: at + 5, Status: 502}, ran, true},
		{"was on its way", trial.Request{Send: at - 5, Recv: at + 5, Status: 502}, nil, true},
		{"waited for long", trial.Request{Send: at - time.Second, Recv: at + breakTime, Status: 502}, ran, true},
		{"failed in that very moment", trial.Request{Send: at - 5, Recv: at, Status: 502}, ran, true},
		{"ran elsewhere", trial.Request{Send: at - 5, Recv: at + 5, Status: 502}, &trial.Execution{Request: 1, Worker: "w2#1"}, false},
		{"ran in another life", trial.Request{Send: at - 5, Recv: at + 5, Status: 502}, &trial.Execution{Request: 1, Worker: "w1#2"}, false},
		{"failed before", trial.Request{Send: at - 5, Recv: at - 1, Status: 502}, ran, false},
		{"sent before the router had noticed", trial.Request{Send: at + 1, Recv: at + 5, Status: 502}, nil, true},
		{"sent after, and run", trial.Request{Send: at + 1, Recv: at + 5, Status: 502}, ran, false},
		{"sent when it must have noticed", trial.Request{Send: at + 1, Recv: at + breakTime + 1, Status: 502}, nil, false},
		{"failed much later", trial.Request{Send: at - 5, Recv: at + breakTime + 1, Status: 502}, ran, false},
		{"held", trial.Request{Send: at - 5, Recv: at + 5, Status: 503}, nil, false},
	}
	for _, tt := range tests {
		tt.r.Number = 1
		seen := trial.Record{Requests: map[int64]*trial.Execution{}}
		if tt.x != nil {
			seen.Requests[1] = tt.x
		}
		j := newJudge(config{}, nil, seen, nil, []cut{{"w1#1", at}})
		if v := j.classify(&tt.r); v.allowed != tt.allowed {
			t.Errorf("%s: %q, allowed %v", tt.name, v.cause, v.allowed)
		}
	}
}

func TestExcused(t *testing.T) {
	j := &judge{events: []*event{{act: act{Kind: pause}, process: "w1#1", begin: 100, end: 200}}, sent: map[int64]time.Duration{1: 99, 2: 101}}
	late := func(worker string, how trial.Outcome) *trial.Execution {
		return &trial.Execution{Request: 1, Worker: worker, Outcome: how}
	}
	tests := []struct {
		f    trial.Finding
		want bool
	}{
		{trial.Finding{Kind: trial.Overlap, At: 201, Late: late("w1#1", trial.Fenced)}, true},
		{trial.Finding{Kind: trial.Regression, At: 201, Late: late("w1#1", trial.Fenced)}, true},
		{trial.Finding{Kind: trial.Overlap, At: 201, Late: late("w1#1", trial.Written)}, false},
		{trial.Finding{Kind: trial.Regression, At: 201, Late: late("w2#1", trial.Fenced)}, false},
		{trial.Finding{Kind: trial.Regression, At: 150, Late: late("w1#1", trial.Fenced)}, false},
		{trial.Finding{Kind: trial.Regression, At: 201 + lateGrace, Late: late("w1#1", trial.Fenced)}, false},
		{trial.Finding{Kind: trial.LostUpdate, At: 201, Late: late("w1#1", trial.Fenced)}, false},
		{trial.Finding{Kind: trial.MixedUp, At: 201}, false},
		{trial.Finding{Kind: trial.Regression, At: 201, Late: &trial.Execution{Request: 2, Worker: "w1#1", Outcome: trial.Fenced}}, false},
	}
	for i, tt := range tests {
		if got := j.excused(tt.f); got != tt.want {
			t.Errorf("%d: %v", i, got)
		}
	}
}

func TestIdle(t *testing.T) {
	own := &trial.Execution{Request: 1, Begin: 60, End: 80}
	j := &judge{seen: trial.Record{
		Keys:     map[string]*trial.Counter{"k": {History: []*trial.Execution{{Begin: 0, End: 5}, {Begin: 5, End: 20}, {Begin: 30, End: 40}, own}}},
		Requests: map[int64]*trial.Execution{1: own},
	}}
	if got := j.idle(&trial.Request{Number: 1, Key: "k", Send: 10, Recv: 85}); got != 30 {
		t.Errorf("waited for %d while nothing ran, want 30", got)
	}
	if got := j.idle(&trial.Request{Number: 2, Key: "other", Send: 10, Recv: 85}); got != 75 {
		t.Errorf("waited for %d, want 75", got)
	}
}
