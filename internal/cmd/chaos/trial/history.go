package trial

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// operation is an increment of a key's counter as a client has seen it.
type operation struct {
	key          string
	call, back   time.Duration
	value, token int64
}

// Never is the return of an operation whose client saw no answer.
const Never = time.Duration(math.MaxInt64)

// Operations makes the history of what was written. An answer that a client
// did not see is taken from the observer, and counts as returning never: it
// may have been written at any time after the call. What was never written
// had no effect and is left out.
func Operations(requests []*Request, seen Record) (ops []operation, wrong []Finding) {
	for _, r := range requests {
		x := seen.Requests[r.Number]
		switch {
		case r.OK() && (x == nil || x.Outcome != Written || x.Value != r.Value || x.Token != r.Token):
			wrong = append(wrong, Finding{MixedUp, r.Key, r.Recv,
				fmt.Sprintf("request %d was answered %d with token %d, the app saw %v", r.Number, r.Value, r.Token, x), nil})
		case r.OK():
			ops = append(ops, operation{r.Key, r.Send, r.Recv, r.Value, r.Token})
		case x != nil && x.Outcome == Written:
			ops = append(ops, operation{r.Key, r.Send, Never, x.Value, x.Token})
		}
	}
	return ops, wrong
}

// count is the state of the model.
type count struct{ value, token int64 }

// counterModel is a counter per key: an operation adds one, under a token that
// is higher than the one before.
var counterModel = porcupine.Model{
	Init: func() any { return count{} },
	Step: func(state, input, output any) (bool, any) {
		before, after := state.(count), output.(count)
		if before == (count{}) {
			before.value = input.(int64) // where the segment begins
		}
		return after.value == before.value+1 && after.token > before.token, after
	},
	DescribeOperation: func(_, output any) string { return fmt.Sprintf("+1 → %+v", output) },
}

// segment bounds the operations that porcupine looks at in one go.
const segment = 2000

// Linearizable checks each key's history against a counter: once by its
// definition, which a counter whose every value is known allows in one pass,
// and once with porcupine, in segments. It returns the keys that fail and why.
func Linearizable(ops []operation, timeout time.Duration) (bad map[string]string) {
	bad = make(map[string]string)
	byKey := make(map[string][]operation)
	for _, op := range ops {
		byKey[op.key] = append(byKey[op.key], op)
	}
	deadline := time.Now().Add(timeout)
	for key, ops := range byKey {
		slices.SortFunc(ops, func(a, b operation) int { return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.call, b.call)) })
		if why := ordered(ops); why != "" {
			bad[key] = why
		}
		for part := range slices.Chunk(ops, segment) {
			result := porcupine.CheckOperationsTimeout(counterModel, history(part), max(time.Until(deadline), time.Millisecond))
			if result != porcupine.Ok {
				bad[key] = fmt.Sprintf("porcupine: %s; %s", result, bad[key])
				break
			}
		}
	}
	return bad
}

// ordered looks at operations sorted by value. The values are then the only
// possible order, so each must be there once, with rising tokens, and none may
// have been called after a later one returned.
func ordered(ops []operation) string {
	back := Never // earliest return of the operations after this one
	for i := len(ops) - 1; i >= 0; i-- {
		op := ops[i]
		if op.call > back {
			return fmt.Sprintf("the one with value %d was called at %v, after a later one had returned at %v", op.value, op.call, back)
		}
		back = min(back, op.back)
		if op.value != int64(i)+1 {
			return fmt.Sprintf("value %d comes as number %d", op.value, i+1)
		}
		if i > 0 && op.token <= ops[i-1].token {
			return fmt.Sprintf("value %d has token %d after %d", op.value, op.token, ops[i-1].token)
		}
	}
	return ""
}

func history(ops []operation) []porcupine.Operation {
	first := ops[0].value - 1
	h := make([]porcupine.Operation, len(ops))
	for i, op := range ops {
		h[i] = porcupine.Operation{Input: first, Output: count{op.value, op.token}, Call: int64(op.call), Return: int64(op.back)}
	}
	return h
}
