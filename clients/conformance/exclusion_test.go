package conformance

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"
)

var duration = flag.Duration("t", 8*time.Second, "how long TestExclusion takes")

// judge hears of all locks and sees that none overlap.
type judge struct {
	mu      sync.Mutex
	holders map[string]holder
	tokens  map[string]int64 // highest so far
	locks   map[string]int   // by client
}

// holder is a lock that a caller works with.
type holder struct {
	driver *driver
	id     int
}

// left returns for how many more seconds the client says that it holds the lock.
func (h holder) left() float64 { return h.driver.of(h.id, "left").Left }

// took hears that a key was locked, and reports whether its holder may work.
func (j *judge) took(t *testing.T, client, key string, by holder, token int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.locks[client]++
	if token <= j.tokens[key] {
		if by.left() > 0 {
			t.Errorf("%s: token %d after %d", key, token, j.tokens[key])
		}
		return false
	}
	if other, held := j.holders[key]; held {
		if left := other.left(); left > 0 {
			t.Errorf("%s: two have it, one of them for another %.2fs", key, left)
		}
	}
	j.tokens[key], j.holders[key] = token, by
	return true
}

// gave hears that a caller does not work with a key any more.
func (j *judge) gave(key string, by holder) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.holders[key] == by {
		delete(j.holders, key)
	}
}

// call locks keys until stop is closed.
func (j *judge) call(t *testing.T, client string, d *driver, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		key := fmt.Sprint("key-", rand.N(3))
		by := holder{d, d.beginLock(wish{wait: 60, keys: []string{key}})}
		l := d.end(by.id)
		if l.Error != "" {
			t.Errorf("%s: locking %s: %s %s", client, key, l.Error, l.Text)
			return
		}
		if j.took(t, client, key, by, l.Tokens[key]) {
			work := rand.N(20 * time.Millisecond)
			if rand.N(20) == 0 {
				work = sessionTTL
			}
			select {
			case <-time.After(work):
			case <-d.lostOf(by.id):
			}
			j.gave(key, by)
		}
		d.of(by.id, "unlock") // Lost is right if a worker was killed
	}
}

// TestExclusion has all clients want the same keys, by proxies that lose and repeat requests and
// answers, while workers are killed.
func TestExclusion(t *testing.T) {
	s := newSite(t)
	unreliable := func(*http.Request) fate {
		f := fate{drop: rand.N(20) == 0, lose: rand.N(10) == 0, repeat: rand.N(10) == 0}
		if rand.N(10) == 0 {
			f.again = rand.N(time.Second)
		}
		return f
	}
	j := &judge{holders: make(map[string]holder), tokens: make(map[string]int64), locks: make(map[string]int)}
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for _, c := range clients {
		if !c.installed() {
			continue // TestClients says so
		}
		j.mu.Lock()
		j.locks[c.name] = 0
		j.mu.Unlock()
		for range 2 {
			d := c.start(t, settled.Seconds(), s.newProxy(unreliable), s.newProxy(unreliable))
			for range 4 {
				callers.Go(func() { j.call(t, c.name, d, stop) })
			}
		}
	}
	s.killWorkers(4*time.Second, *duration)
	close(stop)
	callers.Wait()
	for name, n := range j.locks {
		if t.Logf("%s had %d locks", name, n); n == 0 {
			t.Errorf("%s had no lock", name)
		}
	}
}
