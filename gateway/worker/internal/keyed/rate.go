package keyed

import (
	"cmp"
	"container/heap"
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

// maxBuckets is how many keys' rates are kept at one time. Each takes some 150 bytes.
const maxBuckets = 1_000_000

// rates bounds the executions of keys by their routes' rates. It has a token bucket for each route
// and key, unless the bucket is full. The key's owner keeps it, and starts with a full one.
type rates struct {
	mu      sync.Mutex // guards what follows
	buckets map[bucketID]*bucket
	byFull  bucketHeap
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

// bucket is a token bucket. It stores the time when it will be full, which determines the number of
// tokens at any other time (as in the Generic Cell Rate Algorithm).
type bucket struct {
	id    bucketID
	full  time.Duration // when it is, since the worker's start
	index int           // in rates.byFull
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
	b := r.buckets[id]
	full := now
	if b != nil {
		full = max(b.full, now)
		if full > now+size { // the rate was another one
			full = now + size
			b.full = full
			heap.Fix(&r.byFull, b.index)
		}
	}
	if wait := full + interval - now - size; wait > 0 {
		return &RateError{key, p.Rate, wait}
	}
	if b == nil {
		b = r.addLocked(id, now)
	}
	b.full = full + interval
	heap.Fix(&r.byFull, b.index)
	return nil
}

// of returns the rates of a key, at now in that term of its partition, that are used up in part. limits has the rate of each route.
func (r *rates) of(key string, limits map[string]policy.Rate, term uint64, now time.Duration) (list []status.KeyRate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, route := range slices.Sorted(maps.Keys(limits)) {
		b, rate := r.buckets[newBucketID(route, key, term)], limits[route]
		if b == nil {
			continue
		}
		used := float64(max(b.full-now, 0)) / float64(rate.Interval())
		list = append(list, status.KeyRate{Route: route, PerSecond: rate.PerSecond, Burst: rate.Burst, Left: max(float64(rate.Burst)-used, 0)})
	}
	return list
}

func (r *rates) giveBack(p *policy.Policy, key string, term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.buckets[newBucketID(p.Route, key, term)]; b != nil {
		b.full -= p.Rate.Interval()
		heap.Fix(&r.byFull, b.index)
	}
}

// addLocked adds a bucket. In exchange it removes a few buckets that are full again, or, if there
// is no room, the one that will be full next.
func (r *rates) addLocked(id bucketID, now time.Duration) *bucket {
	if r.buckets == nil {
		r.buckets = make(map[bucketID]*bucket)
	}
	var b *bucket
	for range 4 {
		if len(r.byFull) > 0 && (len(r.byFull) >= cmp.Or(r.most, maxBuckets) || r.byFull[0].full <= now) {
			b = heap.Pop(&r.byFull).(*bucket)
			delete(r.buckets, b.id)
		}
	}
	if b == nil {
		b = new(bucket)
	}
	b.id = id
	r.buckets[id] = b
	heap.Push(&r.byFull, b)
	return b
}

// bucketHeap is a [heap.Interface]: the bucket that is full next comes first.
type bucketHeap []*bucket

func (h bucketHeap) Len() int           { return len(h) }
func (h bucketHeap) Less(i, j int) bool { return h[i].full < h[j].full }
func (h bucketHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *bucketHeap) Push(x any) {
	b := x.(*bucket)
	b.index = len(*h)
	*h = append(*h, b)
}

func (h *bucketHeap) Pop() any {
	last := len(*h) - 1
	b := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return b
}
