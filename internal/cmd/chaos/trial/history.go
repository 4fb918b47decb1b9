package trial

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// operation is an increment of a key's counter as a client has seen it.
type operation struct {
	key          string
	call, back   time.Duration
	value, token int64
}

// Never is the return of an operation whose client saw no answer.
const Never = time.Duration(math.MaxInt64)

// operations makes the history of what was written. An answer that a client
// did not see is taken from the observer, and counts as returning never: it
// may have been written at any time after the call. What was never written
// had no effect and is left out.
func operations(requests []*Request, seen Record) (ops []operation, wrong []Finding) {
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

// badHistories returns the keys whose history is not that of a counter, and why.
func badHistories(ops []operation) map[string]string {
	byKey := make(map[string][]operation)
	for _, op := range ops {
		byKey[op.key] = append(byKey[op.key], op)
	}
	bad := make(map[string]string)
	for key, ops := range byKey {
		slices.SortFunc(ops, func(a, b operation) int { return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.call, b.call)) })
		if why := ordered(ops); why != "" {
			bad[key] = why
		}
	}
	return bad
}

// ordered looks at operations sorted by value. The values are then the only
// possible order, so each must be there once, with rising tokens, and none may
// have been called after a later one returned: the history is linearizable.
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
