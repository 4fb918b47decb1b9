package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/ring"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// placer writes placements at random, as a balancer would that is wrong, and one of several.
type placer struct{ placed, ended, refused atomic.Int64 }

// run goes on until ctx ends. It has the partitions of keys in use placed, by the admin address of a router or worker.
func (p *placer) run(ctx context.Context, admin string, mix trial.Mix, names []string, rng *rand.Rand) {
	client := &http.Client{Timeout: 2 * time.Second}
	for ctx.Err() == nil {
		trial.Sleep(ctx, trial.UpTo(rng, 600*time.Millisecond))
		partition := ring.Config{}.Partition(mix.Next(rng).Key)
		path, query, done := "/place", url.Values{"partition": {strconv.Itoa(partition)}, "worker": {names[rng.IntN(len(names))]}}, &p.placed
		if rng.IntN(4) == 0 {
			path, done = "/unplace", &p.ended
			query.Del("worker")
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+admin+path+"?"+query.Encode(), nil)
		if err != nil {
			continue
		}
		res, err := client.Do(req)
		if err == nil {
			res.Body.Close()
		}
		if err != nil || res.StatusCode != http.StatusOK {
			done = &p.refused
		}
		done.Add(1)
	}
}

func (p *placer) String() string {
	return fmt.Sprintf("%d placed, %d ended, %d refused", p.placed.Load(), p.ended.Load(), p.refused.Load())
}
