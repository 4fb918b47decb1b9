package trial

import (
	"strings"
	"testing"
	"time"
)

func increments(n int) []operation {
	var ops []operation
	for i := range n {
		at := time.Duration(i) * 10
		ops = append(ops, operation{"k", at, at + 15, int64(i + 1), int64(100 + i)})
	}
	return ops
}

func TestLinearizable(t *testing.T) {
	tests := []struct {
		name   string
		change func(ops []operation) []operation
		bad    bool
	}{
		{"as it should be", func(ops []operation) []operation { return ops }, false},
		{"no answer, but written", func(ops []operation) []operation { ops[7].back = Never; return ops }, false},
		{"lost update", func(ops []operation) []operation { ops[8].value = ops[7].value; return ops }, true},
		{"never written", func(ops []operation) []operation { return append(ops[:8], ops[9:]...) }, true},
		{"called after a later one had returned", func(ops []operation) []operation {
			ops[7].value, ops[17].value = ops[17].value, ops[7].value
			ops[7].token, ops[17].token = ops[17].token, ops[7].token
			return ops
		}, true},
		{"token not higher", func(ops []operation) []operation { ops[8].token = ops[7].token; return ops }, true},
	}
	for _, tt := range tests {
		for _, n := range []int{20, segment + 20} {
			bad := Linearizable(tt.change(increments(n)), time.Minute)
			if (len(bad) > 0) != tt.bad || tt.bad && !strings.HasPrefix(bad["k"], "porcupine: Illegal") {
				t.Errorf("%s, %d operations: %v", tt.name, n, bad)
			}
		}
	}
}

func TestOrderBetweenSegments(t *testing.T) {
	ops := increments(segment + 20)
	ops[segment+10].back = 5 // before the ones of the first segment were called
	ops[segment+10].call = 0
	if bad := Linearizable(ops, time.Minute); len(bad) == 0 {
		t.Error("an operation that returned long before its turn was accepted")
	}
}

func TestOperationsTrustNeitherSide(t *testing.T) {
	done := &Execution{Outcome: Written, Value: 1, Token: 5}
	seen := Record{Requests: map[int64]*Execution{1: done, 2: done, 3: {Outcome: aborted}, 4: {Outcome: Written, Value: 2, Token: 6}}}
	requests := []*Request{
		{Number: 1, Status: 200, Value: 1, Token: 5, Recv: 10},
		{Number: 2, Status: 200, Value: 2, Token: 5},  // another value than the app wrote
		{Number: 3, Status: 502},                      // no effect
		{Number: 4, Status: 502, Recv: 20},            // an effect, no answer
		{Number: 5, Status: 200, Value: 9, Token: 10}, // never seen by the app
	}
	ops, wrong := Operations(requests, seen)
	if len(ops) != 2 || ops[0].back != 10 || ops[1].back != Never || ops[1].value != 2 {
		t.Errorf("operations %+v", ops)
	}
	if len(wrong) != 2 {
		t.Errorf("findings %+v", wrong)
	}
}
