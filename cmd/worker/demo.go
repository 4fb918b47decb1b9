package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/wake"
)

// maxHold bounds ?hold=, so that a typo does not hold a key for a day.
const maxHold = time.Minute

// maxKeys is how many keys the demo counts before it begins anew.
const maxKeys = 100_000

// demo is the app that answers when there is no --upstream. It counts the
// requests of each key, and notices if two of them ever run at once.
type demo struct {
	worker string
	keys   sync.Map // of *demoKey, by the key
	known  atomic.Int64
}

type demoKey struct{ count, running atomic.Int64 }

type demoAnswer struct {
	Key       string `json:"key"`
	Worker    string `json:"worker"`
	Partition int    `json:"partition"`
	Count     int64  `json:"count"` // requests of this key at this worker so far
	Epoch     int64  `json:"epoch"`
	Token     int64  `json:"token"`
	Overlap   bool   `json:"overlap,omitempty"` // another request of this key ran here at the same time
}

func (d *demo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	hold, err := parseHold(r.URL.Query().Get("hold"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key, err := gateway.KeyFromHeader(r.Header)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	token, _ := worker.TokenFrom(r.Context())
	answer := demoAnswer{Key: key, Worker: d.worker, Token: token}
	answer.Epoch, _ = strconv.ParseInt(r.Header.Get(gateway.HeaderEpoch), 10, 64)
	answer.Partition, _ = strconv.Atoi(r.Header.Get(gateway.HeaderPartition))

	known, old := d.keys.LoadOrStore(key, new(demoKey))
	if !old && d.known.Add(1) == maxKeys {
		d.keys.Clear()
		d.known.Store(0)
	}
	k := known.(*demoKey)
	answer.Overlap = k.running.Add(1) > 1
	defer k.running.Add(-1)
	if hold > 0 && !wake.Sleep(hold, r.Context().Done()) {
		return
	}
	answer.Count = k.count.Add(1)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func parseHold(s string) (time.Duration, error) {
	hold, err := time.ParseDuration(cmp.Or(s, "0"))
	if err != nil || hold < 0 || hold > maxHold {
		return 0, fmt.Errorf("hold=%q: want a duration from 0s to %v, such as 50ms", s, maxHold)
	}
	return hold, nil
}
