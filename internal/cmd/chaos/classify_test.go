package main

import (
	"testing"
	"time"
)

func TestClassify(t *testing.T) {
	const later = time.Minute // so that one event has no part in what happens at another
	killed := &event{act: act{Kind: kill, Worker: "w1"}, process: "w1#1", begin: 100, end: 110}
	paused := &event{act: act{Kind: pause, Worker: "w2"}, process: "w2#1", begin: later + 200, end: later + 300}
	lost := &event{act: act{Kind: redisLoss}, begin: later + 400, end: later + 410}
	at := func(worker string, begin time.Duration) *execution { return &execution{Worker: worker, Begin: begin} }
	seen := record{
		keys: map[string]*counter{
			"k1": {history: []*execution{at("w1#1", 50)}},
			"k2": {history: []*execution{at("w2#1", 50)}},
		},
	}
	tests := []struct {
		name    string
		r       request
		x       *execution
		event   *event
		allowed bool
	}{
		{"ran on the killed worker", request{Key: "k1", Send: 90, Recv: 115, Status: 502}, at("w1#1", 95), killed, true},
		{"queued at the killed worker", request{Key: "k1", Send: 90, Recv: 115, Status: 502}, nil, killed, true},
		{"was on its way to a key that had just moved", request{Key: "k2", Send: 90, Recv: 115, Status: 502}, nil, killed, true},
		{"was elsewhere", request{Key: "k3", Send: later + 350, Recv: later + 400 + breakTime, Status: 502}, nil, lost, false},
		{"ran elsewhere", request{Key: "k1", Send: 90, Recv: 115, Status: 502}, at("w2#1", 95), killed, false},
		{"sent before the router had noticed", request{Key: "k1", Send: 111, Recv: 110 + breakTime, Status: 502}, nil, killed, true},
		{"sent before that, and run elsewhere", request{Key: "k1", Send: 111, Recv: 115, Status: 502}, at("w2#1", 112), killed, false},
		{"sent before that, and held", request{Key: "k1", Send: 111, Recv: 115, Status: 503}, nil, killed, false},
		{"sent when it must have noticed", request{Key: "k1", Send: 111, Recv: 111 + breakTime, Status: 502}, nil, killed, false},
		{"held for too long", request{Key: "k1", Send: 90, Recv: 115, Status: 503}, nil, killed, false},
		{"no answer at all", request{Key: "k1", Send: 90, Recv: 115}, nil, killed, false},
		{"ran on the paused worker", request{Key: "k2", Send: later + 190, Recv: later + 310, Status: 502}, at("w2#1", later+195), paused, true},
		{"was refused for its token", request{Key: "k2", Send: later + 190, Recv: later + 310, Status: 409}, at("w2#1", later+301), paused, true},
		{"waited at the paused worker", request{Key: "k2", Send: later + 210, Recv: later + 310, Status: 502}, nil, paused, false},
		{"redis lost its data", request{Key: "k2", Send: later + 405, Recv: later + 420, Status: 502}, at("w2#1", later+406), lost, false},
		{"before all", request{Key: "k2", Send: 10, Recv: 20, Status: 503}, nil, nil, false},
	}
	for _, tt := range tests {
		tt.r.Number = 1
		seen.requests = map[int64]*execution{}
		if tt.x != nil {
			seen.requests[1] = tt.x
		}
		j := &judge{events: []*event{killed, paused, lost}, seen: seen}
		if v := j.classify(&tt.r); v.event != tt.event || v.allowed != tt.allowed {
			t.Errorf("%s: %q, event %+v, allowed %v", tt.name, v.cause, v.event, v.allowed)
		}
	}
	rough := &judge{events: []*event{killed}, rough: true}
	if v := rough.classify(&request{Send: 120, Recv: 130, Status: 503}); !v.allowed {
		t.Error("a rough plan does not allow the router to give up")
	}
}

func TestClassifyCuts(t *testing.T) {
	const at = time.Minute
	ran := &execution{Request: 1, Worker: "w1#1"}
	tests := []struct {
		name    string
		r       request
		x       *execution
		allowed bool
	}{
		{"ran behind the link", request{Send: at - 5, Recv: at + 5, Status: 502}, ran, true},
		{"was on its way", request{Send: at - 5, Recv: at + 5, Status: 502}, nil, true},
		{"waited for long", request{Send: at - time.Second, Recv: at + breakTime, Status: 502}, ran, true},
		{"failed in that very moment", request{Send: at - 5, Recv: at, Status: 502}, ran, true},
		{"ran elsewhere", request{Send: at - 5, Recv: at + 5, Status: 502}, &execution{Request: 1, Worker: "w2#1"}, false},
		{"ran in another life", request{Send: at - 5, Recv: at + 5, Status: 502}, &execution{Request: 1, Worker: "w1#2"}, false},
		{"failed before", request{Send: at - 5, Recv: at - 1, Status: 502}, ran, false},
		{"sent before the router had noticed", request{Send: at + 1, Recv: at + 5, Status: 502}, nil, true},
		{"sent after, and run", request{Send: at + 1, Recv: at + 5, Status: 502}, ran, false},
		{"sent when it must have noticed", request{Send: at + 1, Recv: at + breakTime + 1, Status: 502}, nil, false},
		{"failed much later", request{Send: at - 5, Recv: at + breakTime + 1, Status: 502}, ran, false},
		{"held", request{Send: at - 5, Recv: at + 5, Status: 503}, nil, false},
	}
	for _, tt := range tests {
		tt.r.Number = 1
		seen := record{requests: map[int64]*execution{}}
		if tt.x != nil {
			seen.requests[1] = tt.x
		}
		j := newJudge(config{}, nil, seen, nil, []cut{{"w1#1", at}})
		if v := j.classify(&tt.r); v.allowed != tt.allowed {
			t.Errorf("%s: %q, allowed %v", tt.name, v.cause, v.allowed)
		}
	}
}

func TestExcused(t *testing.T) {
	j := &judge{events: []*event{{act: act{Kind: pause}, process: "w1#1", begin: 100, end: 200}}, sent: map[int64]time.Duration{1: 99, 2: 101}}
	late := func(worker string, how outcome) *execution {
		return &execution{Request: 1, Worker: worker, Outcome: how}
	}
	tests := []struct {
		f    finding
		want bool
	}{
		{finding{Kind: overlap, At: 201, Late: late("w1#1", fenced)}, true},
		{finding{Kind: regression, At: 201, Late: late("w1#1", fenced)}, true},
		{finding{Kind: overlap, At: 201, Late: late("w1#1", written)}, false},
		{finding{Kind: regression, At: 201, Late: late("w2#1", fenced)}, false},
		{finding{Kind: regression, At: 150, Late: late("w1#1", fenced)}, false},
		{finding{Kind: regression, At: 201 + lateGrace, Late: late("w1#1", fenced)}, false},
		{finding{Kind: lostUpdate, At: 201, Late: late("w1#1", fenced)}, false},
		{finding{Kind: mixedUp, At: 201}, false},
		{finding{Kind: regression, At: 201, Late: &execution{Request: 2, Worker: "w1#1", Outcome: fenced}}, false},
	}
	for i, tt := range tests {
		if got := j.excused(tt.f); got != tt.want {
			t.Errorf("%d: %v", i, got)
		}
	}
}

func TestIdle(t *testing.T) {
	own := &execution{Request: 1, Begin: 60, End: 80}
	j := &judge{seen: record{
		keys:     map[string]*counter{"k": {history: []*execution{{Begin: 0, End: 5}, {Begin: 5, End: 20}, {Begin: 30, End: 40}, own}}},
		requests: map[int64]*execution{1: own},
	}}
	if got := j.idle(&request{Number: 1, Key: "k", Send: 10, Recv: 85}); got != 30 {
		t.Errorf("waited for %d while nothing ran, want 30", got)
	}
	if got := j.idle(&request{Number: 2, Key: "other", Send: 10, Recv: 85}); got != 75 {
		t.Errorf("waited for %d, want 75", got)
	}
}

func TestParseCommands(t *testing.T) {
	c := parseCommands("# Commandstats\r\ncmdstat_evalsha:calls=12,usec=34,usec_per_call=2.83\r\ncmdstat_client|setname:calls=3,usec=1\r\nrubbish\r\n")
	if len(c) != 2 || c["evalsha"] != 12 || c["client|setname"] != 3 {
		t.Errorf("%v", c)
	}
	tr := traffic{span: 2 * time.Second, requests: 4000, calls: commands{"evalsha": 20, "hget": 100}}
	if tr.trips() != 20 || tr.perSecond() != 10 {
		t.Errorf("%v", tr)
	}
}
