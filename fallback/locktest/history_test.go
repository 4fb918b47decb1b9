package locktest

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/anishathalye/porcupine"
)

// event is a line of a worker's file.
type event struct {
	what, caller, key string
	token, from, to   int64
}

// input is an operation's: what happens to which token.
type input struct {
	what  string
	token int64
}

// Operations of the lock's model that are no line: the end of a hold that was
// not released, at some time in an interval.
const ended = "ended"

// history is one key's operations, for each of the models.
type history struct {
	lock, resource []porcupine.Operation
}

// read makes histories of all lives' files.
func read(lives []life) (map[string]*history, error) {
	all := map[string]*history{}
	clients := map[string]int{}
	for _, l := range lives {
		events, err := readFile(l.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // killed before it began
		}
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			if all[e.key] == nil {
				all[e.key] = &history{}
			}
			if _, ok := clients[e.caller]; !ok {
				clients[e.caller] = len(clients)
			}
		}
		for _, key := range keysOf(events) {
			all[key].add(events, key, l.dead, clients)
		}
	}
	return all, nil
}

func keysOf(events []event) []string {
	var keys []string
	for _, e := range events {
		keys = append(keys, e.key)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func readFile(name string) ([]event, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var events []event
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e event
		if _, err := fmt.Sscan(lines.Text(), &e.what, &e.caller, &e.key, &e.token, &e.from, &e.to); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", name, lines.Text(), err)
		}
		events = append(events, e)
	}
	return events, lines.Err()
}

// tenure is what is known of one token's time.
type tenure struct {
	latest int64 // when it was last known to be alive
	over   int64 // when it had ended at the latest, 0 if it was released
}

// add adds what one life did with a key.
func (h *history) add(events []event, key string, dead int64, clients map[string]int) {
	const late = int64(ttl) + 2e9 // a lock is gone that long after its last renewal was sent
	tenures := map[int64]*tenure{}
	pending := map[int64]event{} // writes of unknown outcome, by token: one at a time
	for _, e := range events {
		if e.key != key {
			continue
		}
		client := clients[e.caller]
		switch e.what {
		case acquired:
			tenures[e.token] = &tenure{latest: e.from, over: dead + late}
			h.lock = append(h.lock, operation(client, e))
		case alive:
			tenures[e.token].latest = e.from
			h.lock = append(h.lock, operation(client, e))
		case released:
			tenures[e.token].over = 0
			h.lock = append(h.lock, operation(client, e))
		case notOwner:
			tenures[e.token].over = e.to
		case unknown:
			tenures[e.token].over = e.to + late
		case writing:
			pending[e.token] = e
		case written, refused:
			delete(pending, e.token)
			h.resource = append(h.resource, operation(client, e))
		}
	}
	for token, t := range tenures {
		if t.over != 0 {
			h.lock = append(h.lock, porcupine.Operation{Input: input{ended, token}, Call: t.latest, Return: t.over})
		}
	}
	for _, e := range pending {
		e.to = dead + 1e9 // it may arrive after the process died
		h.resource = append(h.resource, operation(clients[e.caller], e))
	}
}

func operation(client int, e event) porcupine.Operation {
	return porcupine.Operation{ClientId: client, Input: input{e.what, e.token}, Call: e.from, Return: e.to}
}

// lockState is who holds the lock, and the last token.
type lockState struct{ holder, last int64 }

// lockModel: at most one holder, whose token is above all before.
var lockModel = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, in, _ any) (bool, any) {
		s, i := state.(lockState), in.(input)
		switch i.what {
		case acquired:
			return s.holder == 0 && i.token > s.last, lockState{i.token, i.token}
		case alive:
			return s.holder == i.token, s
		case released:
			return s.holder == i.token, lockState{0, s.last}
		default: // ended
			if s.holder == i.token {
				s.holder = 0
			}
			return true, s
		}
	},
	DescribeOperation: func(in, _ any) string { return fmt.Sprint(in) },
}

// resourceModel: the highest token that was written; older ones are refused.
// A write of unknown outcome may have happened or not.
var resourceModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{int64(0)} },
	Step: func(state, in, _ any) []any {
		highest, i := state.(int64), in.(input)
		switch {
		case i.what == written && i.token >= highest:
			return []any{i.token}
		case i.what == refused && i.token < highest:
			return []any{highest}
		case i.what == writing:
			return []any{highest, max(highest, i.token)}
		}
		return nil
	},
}
