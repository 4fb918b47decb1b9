// Package suspects decides which keys are kept away from workers because executions of them have ended
// workers. It is pure; the caller keeps a [Book] in the store.
//
// A key is in one of three states:
//
//	event                    unknown   suspect      quarantined
//	under way at a death     suspect   quarantined  -
//	an execution ends        -         unknown      (none begins)
//	released by an operator  -         unknown      unknown
//	[Within] is over         -         unknown      unknown
//
// All keys that were under way when a worker died become suspects. The innocent ones are cleared
// when their next execution ends, and a key that ends its worker each time is not. So nobody can have
// the key of somebody else quarantined by ending workers, unless each time before one execution of that key ends.
package suspects

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

const (
	// Within is the longest time between two deaths that count together, and how long a quarantine lasts.
	Within = 10 * time.Minute

	// MostDeaths is how many deaths are noted, the latest ones.
	MostDeaths = 16

	// MostKeys is how many keys of a death are noted.
	MostKeys = 128

	// MostQuarantined is how many keys can be quarantined at a time. Others stay suspects.
	MostQuarantined = 8
)

// Book is what is known of suspects. Its methods return changed copies.
type Book struct {
	Deaths []Death `json:"deaths,omitempty"`
	Cases  []Case  `json:"cases,omitempty"` // of different keys
}

// Death is the end of a worker with executions under way.
type Death struct {
	Worker string   `json:"worker"` // incarnation
	At     int64    `json:"at"`     // Unix seconds
	Keys   []uint64 `json:"keys"`
}

// Case is a quarantined key.
type Case struct {
	Key     string    `json:"key"`
	Since   int64     `json:"since"`   // Unix seconds
	Workers [2]string `json:"workers"` // incarnations that have died while it was under way
}

// Until returns when the quarantine ends.
func (c Case) Until() time.Time { return time.Unix(c.Since, 0).Add(Within) }

// Hash returns what stands for a key in a [Death].
func Hash(key string) uint64 { return xxhash.Sum64String(key) }

// After returns b without what is over.
func (b Book) After(now time.Time) Book {
	since := now.Add(-Within).Unix()
	return Book{
		slices.DeleteFunc(slices.Clone(b.Deaths), func(d Death) bool { return d.At <= since }),
		slices.DeleteFunc(slices.Clone(b.Cases), func(c Case) bool { return c.Since <= since }),
	}
}

// Accuse notes keys that were under way at a worker that has died.
func (b Book) Accuse(worker string, now time.Time, keys []uint64) Book {
	d, deaths := Death{Worker: worker, At: now.Unix()}, slices.Clone(b.Deaths)
	if i := slices.IndexFunc(deaths, func(d Death) bool { return d.Worker == worker }); i >= 0 {
		d = deaths[i]
		deaths = slices.Delete(deaths, i, i+1)
	}
	d.Keys = append(slices.Clone(d.Keys), keys...)
	from := Hash(worker) // at each death others are left out, and no client knows which
	slices.SortFunc(d.Keys, func(k, l uint64) int { return cmp.Compare(k-from, l-from) })
	d.Keys = slices.Compact(d.Keys)
	d.Keys = d.Keys[:min(len(d.Keys), MostKeys)]
	deaths = append(deaths, d)
	b.Deaths = deaths[max(0, len(deaths)-MostDeaths):]
	return b
}

// Acquit forgets the death of a worker that has not died.
func (b Book) Acquit(worker string) Book {
	b.Deaths = slices.DeleteFunc(slices.Clone(b.Deaths), func(d Death) bool { return d.Worker == worker })
	return b
}

// Find reports whether a key is quarantined, as c says, or a suspect. The end of an execution clears a suspect. alive
// reports whether an incarnation has a session, so that it has not died.
func (b Book) Find(key string, now time.Time, alive func(worker string) bool) (c Case, quarantined, suspect bool) {
	for _, c := range b.Cases {
		if c.Key == key {
			return c, true, false
		}
	}
	c, hash, n := Case{Key: key, Since: now.Unix()}, Hash(key), 0
	for _, d := range b.Deaths {
		if !slices.Contains(d.Keys, hash) {
			continue
		}
		if suspect = true; !alive(d.Worker) {
			c.Workers[n%2] = d.Worker
			n++
		}
	}
	quarantined = n >= len(c.Workers) && len(b.Cases) < MostQuarantined
	return c, quarantined, suspect && !quarantined
}

// Quarantine notes a case of [Book.Find], if there is room.
func (b Book) Quarantine(c Case) Book {
	if len(b.Cases) < MostQuarantined && !slices.ContainsFunc(b.Cases, func(o Case) bool { return o.Key == c.Key }) {
		b.Cases = append(slices.Clone(b.Cases), c)
	}
	return b
}

// Clear forgets the deaths at which the key was under way: an execution of it has ended.
func (b Book) Clear(key string) Book {
	deaths, hash := slices.Clone(b.Deaths), Hash(key)
	for i, d := range deaths {
		deaths[i].Keys = slices.DeleteFunc(slices.Clone(d.Keys), func(k uint64) bool { return k == hash })
	}
	b.Deaths = slices.DeleteFunc(deaths, func(d Death) bool { return len(d.Keys) == 0 })
	return b
}

// Release clears the key and ends its quarantine.
func (b Book) Release(key string) Book {
	b = b.Clear(key)
	b.Cases = slices.DeleteFunc(slices.Clone(b.Cases), func(c Case) bool { return c.Key == key })
	return b
}

// String returns b as text for [Parse]; "" if nothing is known.
func (b Book) String() string {
	if len(b.Deaths)+len(b.Cases) == 0 {
		return ""
	}
	text, _ := json.Marshal(b) // it has nothing that JSON lacks
	return string(text)
}

// Parse is the reverse of [Book.String].
func Parse(text string) (b Book, err error) {
	if text == "" {
		return b, nil
	}
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return Book{}, fmt.Errorf("suspects: %w", err)
	}
	badDeath := func(d Death) bool { return d.Worker == "" || len(d.Keys) == 0 || len(d.Keys) > MostKeys }
	badCase := func(c Case) bool { return c.Key == "" || slices.Contains(c.Workers[:], "") }
	if len(b.Deaths) > MostDeaths || len(b.Cases) > MostQuarantined || slices.ContainsFunc(b.Deaths, badDeath) || slices.ContainsFunc(b.Cases, badCase) {
		return Book{}, fmt.Errorf("suspects: what cannot be known: %.80q", text)
	}
	return b, nil
}
