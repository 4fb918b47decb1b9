package keyed

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/status"
)

// maxBuckets is how many keys' rates are kept at one time. Each takes some 80 bytes.
const maxBuckets = 1_000_000

// rates bounds the executions of keys by their routes' rates. It has a token bucket for each route
// and key, unless the bucket is full. The key's owner keeps it, and starts with a full one. It stores the
// time when the bucket will be full, since the worker's start, which determines the number of
// tokens at any other time (as in the Generic Cell Rate Algorithm).
type rates struct {
	mu      sync.Mutex // guards what follows
	buckets map[bucketID]time.Duration
	most    int           // buckets; 0 means maxBuckets
	latest  time.Duration // time at which a token was asked for
}

// bucketID identifies a bucket: by hashes, since names may be long, and by the term of the key's
// partition when the bucket began. Keys with equal hashes share a bucket, which can only make the
// limit stricter. Clients cannot choose such keys, since the seed is this process's own.
type bucketID struct{ route, key, term uint64 }

var rateSeed = maphash.MakeSeed()

func newBucketID(route, key string, term uint64) bucketID {
	return bucketID{maphash.String(rateSeed, route), maphash.String(rateSeed, key), term}
}

// RateError is the error of a request that exceeds its route's rate for the key. It has not run.
type RateError struct {
	key  string
	rate policy.Rate
	wait time.Duration // until another one may run
}

func (e *RateError) Error() string {
	return fmt.Sprintf("worker: key %q may have %v requests a second, and %d at once: try again in %v", e.key, e.rate.PerSecond, e.rate.Burst, e.wait.Round(time.Millisecond))
}

// RetryAfter returns the value of Retry-After: whole seconds, after which another request may run.
func (e *RateError) RetryAfter() int { return max(int(math.Ceil(e.wait.Seconds())), 1) }

// takeToken takes a token for an execution of key, in that term of its partition, at now
// since the worker's start, or later if others have come by a later time. It returns a *rateError if there is none.
func (r *rates) takeToken(p *policy.Policy, key string, term uint64, now time.Duration) error {
	interval := p.Rate.Interval()
	size := time.Duration(min(float64(interval)*float64(p.Rate.Burst), math.MaxInt64/4))
	id := newBucketID(p.Route, key, term)
	r.mu.Lock()
	defer r.mu.Unlock()
	now = max(now, r.latest) // who has read the clock before others may come after them
	r.latest = now
	before, known := r.buckets[id]
	full := min(max(before, now), now+size) // it is later if the rate was another one
	if wait := full + interval - now - size; wait > 0 {
		r.buckets[id] = full
		return &RateError{key, p.Rate, wait}
	}
	if !known {
		r.makeRoomLocked(now)
	}
	r.buckets[id] = full + interval
	return nil
}

// of returns the rates of a key, at now in that term of its partition, that are used up in part. limits has the rate of each route.
func (r *rates) of(key string, limits map[string]policy.Rate, term uint64, now time.Duration) (list []status.KeyRate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, route := range slices.Sorted(maps.Keys(limits)) {
		full, known := r.buckets[newBucketID(route, key, term)]
		if !known {
			continue
		}
		rate := limits[route]
		used := float64(max(full-now, 0)) / float64(rate.Interval())
		list = append(list, status.KeyRate{Route: route, PerSecond: rate.PerSecond, Burst: rate.Burst, Left: max(float64(rate.Burst)-used, 0)})
	}
	return list
}

func (r *rates) giveBack(p *policy.Policy, key string, term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := newBucketID(p.Route, key, term)
	if full, known := r.buckets[id]; known {
		r.buckets[id] = full - p.Rate.Interval()
	}
}

// makeRoomLocked makes room for one more bucket. It looks at a few, in no order, and removes the full ones. If
// there is no room even so, it removes the one of these that will be full first.
func (r *rates) makeRoomLocked(now time.Duration) {
	if r.buckets == nil {
		r.buckets = make(map[bucketID]time.Duration)
	}
	looks, next, first := 8, bucketID{}, time.Duration(math.MaxInt64)
	for id, full := range r.buckets {
		if full <= now {
			delete(r.buckets, id)
		} else if full < first {
			next, first = id, full
		}
		if looks--; looks == 0 {
			break
		}
	}
	if len(r.buckets) >= cmp.Or(r.most, maxBuckets) {
		delete(r.buckets, next)
	}
}
