package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// step is what a caller has come to with a lock.
type step string

const (
	asks     step = "asks"
	has      step = "has"
	holds    step = "holds"   // still
	letsGo   step = "lets go" // is about to unlock: nobody may rely on it from now on
	unlocked step = "unlocked"
	forgets  step = "forgets" // neither unlocks nor renews it
	fails    step = "fails"   // got no lock
)

// said is what a caller says to the judge, and waits for it to be heard, before it goes on.
type said struct {
	Life  string // of the process
	Call  int64  // of the life
	Step  step
	Key   int
	Read  bool          // a lock for reading
	Many  bool          // asked for along with others, so that the caller may hold it and wait for those
	Lease time.Duration // asks: for how long the key stays locked if nobody unlocks it
	Token int64         // has
	Until time.Time     // has, holds: until when the caller's lease holds at least, by the wall clock of all
	Lost  bool          // lets go, unlocked: before that
	Err   string        // fails: unless the caller has just given up; unlocked: nobody knows whether it is
}

// call is a call for a lock, by the observer's clock.
type call struct {
	said
	asked      time.Duration
	begin, end time.Duration // from then on it was asked for, and held; until then held
	until      time.Duration // see said
	doubts     []*doubt
}

// doubt is that something may not be if those who hold locks hold them rightly: they have lost them, or say
// after it arose that they still have them.
type doubt struct {
	at    time.Duration
	text  string
	sure  map[*call]bool // whom it takes, and who has said so
	count int            // that have
}

// idle is a time for which nothing kept a key from a caller that waited for it.
type idle struct {
	key        int
	free       time.Duration // since when nothing did
	begin, end time.Duration // begin is later than free if there may have been a lock for nobody until then
	extra      time.Duration // lease of that
	after      ending        // what made it free
	next       string        // who has got it, or waits still
}

// ending is what makes a key free for a caller that waits for it.
type ending uint8

const (
	unlocking ending = iota // its holder has unlocked it
	leaving                 // its holder is dead, or has left it to the end of its lease
	changing                // a caller has come, or waits no more
)

// lockKey is what the judge knows of a key.
type lockKey struct {
	number  int
	holders []*call // more than one only for reading; those that forget it until the ends of their leases
	token   int64
	shared  bool // the token is one for reading
	writers int  // that wait
	readers int  // likewise
	many    int  // of these, those that may hold it already
	isFree  bool // for one that waits
	free    time.Duration
	after   ending
	busy    time.Duration // until then there may be a lock for nobody
	lease   time.Duration // of that
}

// lockJudge hears of all locks, and judges.
type lockJudge struct {
	grant time.Duration // how long a key that is free, and has an owner, may be kept from who waits for it
	now   func() time.Duration

	mu       sync.Mutex // guards what follows
	keys     map[int]*lockKey
	open     map[string]map[int64]*call // by life
	ended    []*call
	idle     []idle
	failed   []*call
	findings []string
	busy     []outage // when the machine was
	unknown  int      // unlocked, or not
	deaths   int      // of processes
	orphans  int      // locks of dead ones
	vanished int      // waits of dead ones
}

func newLockJudge(grant time.Duration, now func() time.Duration) *lockJudge {
	return &lockJudge{grant: grant, now: now, keys: make(map[int]*lockKey), open: make(map[string]map[int64]*call)}
}

// born has the judge hear what a process says.
func (j *lockJudge) born(life string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.open[life] = make(map[int64]*call)
}

// hear takes what a caller says. Nobody hears the dead.
func (j *lockJudge) hear(s said) {
	j.mu.Lock()
	defer j.mu.Unlock()
	calls, now := j.open[s.Life], j.now()
	if calls == nil {
		return
	}
	c := calls[s.Call]
	if s.Step == asks {
		if j.keys[s.Key] == nil {
			j.keys[s.Key] = &lockKey{number: s.Key}
		}
		c = &call{said: s, asked: now, begin: now}
		calls[s.Call] = c
		j.keys[s.Key].wait(c, 1, now)
		return
	}
	k, until := j.keys[c.Key], now+time.Until(s.Until)
	switch s.Step {
	case has:
		c.Token, c.begin, c.until = s.Token, now, until
		j.begin(c, k, now)
	case holds:
		c.until = until
		j.confirm(c)
	case letsGo, forgets:
		if c.Lost = s.Lost; !s.Lost {
			j.confirm(c)
		}
		j.letGo(c, k, s.Step == letsGo && !s.Lost, now)
	case unlocked:
		c.Lost = c.Lost || s.Lost
		if c.Err = s.Err; c.Lost || s.Err != "" {
			k.unsure(now, c)
		}
		if s.Err != "" && !c.Lost {
			j.unknown++
		}
	case fails:
		c.end, c.Err = now, s.Err
		k.unsure(now, c)
		k.wait(c, -1, now)
		if s.Err != "" {
			j.failed = append(j.failed, c)
		}
	}
	if c.Step = s.Step; s.Step == unlocked || s.Step == forgets {
		j.ended = append(j.ended, c)
	}
	if s.Step == unlocked || s.Step == forgets || s.Step == fails {
		delete(calls, s.Call)
	}
}

// begin notes that a caller has a lock. It may have lost it before the judge hears of it.
func (j *lockJudge) begin(c *call, k *lockKey, now time.Duration) {
	if k.isFree {
		j.idle = append(j.idle, k.idle(now, fmt.Sprintf("%s, who had asked for it %v before, with a lease of %v", c.Life, short(now-c.asked), c.Lease)))
	}
	for _, before := range k.holders {
		if before.Read && c.Read {
			continue
		}
		d := j.doubt(c, now, fmt.Sprintf("lock-%d is held with token %d, and with %d", c.Key, before.Token, c.Token), before)
		if before.Step == forgets && now < before.until {
			j.sure(d, before)
		}
	}
	if c.Token < k.token || c.Token == k.token && !(c.Read && k.shared) {
		j.doubt(c, now, fmt.Sprintf("lock-%d: token %d after %d", c.Key, c.Token, k.token))
	}
	if c.Token >= k.token {
		k.token, k.shared = c.Token, c.Read
	}
	k.holders = slices.DeleteFunc(k.holders, func(before *call) bool {
		return !before.Read || !c.Read || before.Step == forgets && before.until <= now
	})
	k.holders = append(k.holders, c)
	k.isFree = false // for the others it is so from now on, if they need not wait for c
	k.wait(c, -1, now)
}

// wait counts a caller more or less that waits.
func (k *lockKey) wait(c *call, n int, now time.Duration) {
	if c.Read {
		k.readers += n
	} else {
		k.writers += n
	}
	if c.Many {
		k.many += n
	}
	k.see(now, changing)
}

// see notes whether something keeps the key from those that wait.
func (k *lockKey) see(now time.Duration, after ending) {
	held, read := false, true
	for _, c := range k.holders {
		if c.Step != forgets {
			held, read = true, read && c.Read
		}
	}
	free := k.many == 0 && (!held && k.writers+k.readers > 0 || held && read && k.readers > 0 && k.writers == 0)
	if free && !k.isFree {
		k.free, k.after = now, after
	}
	k.isFree = free
}

// letGo notes that a lock is its holder's no more. Unless it is about to be unlocked, it may go on without him.
func (j *lockJudge) letGo(c *call, k *lockKey, unlocks bool, now time.Duration) {
	if c.end = now; !unlocks {
		k.unsure(now, c)
	}
	after := unlocking
	if !unlocks {
		after = leaving
	}
	if c.Step = forgets; unlocks || c.Lost {
		k.holders = slices.DeleteFunc(k.holders, func(other *call) bool { return other == c })
	}
	k.see(now, after)
}

// unsure notes that there may be a lock for nobody.
func (k *lockKey) unsure(now time.Duration, c *call) {
	if until := now + c.Lease; until > k.busy {
		k.busy, k.lease = until, c.Lease
	}
}

// idle returns for how long nothing has kept the key from those that wait.
func (k *lockKey) idle(now time.Duration, next string) idle {
	i := idle{next: next, key: k.number, free: k.free, begin: k.free, end: now, after: k.after}
	if k.busy > k.free {
		i.begin, i.extra = k.busy, k.lease
	}
	return i
}

// doubt notes what is wrong if c still holds its lock, and others theirs.
func (j *lockJudge) doubt(c *call, now time.Duration, text string, others ...*call) *doubt {
	d := &doubt{at: now, text: text, sure: make(map[*call]bool)}
	for _, who := range append(others, c) {
		d.sure[who] = false
		who.doubts = append(who.doubts, d)
	}
	return d
}

// confirm notes that c still holds its lock.
func (j *lockJudge) confirm(c *call) {
	for _, d := range c.doubts {
		j.sure(d, c)
	}
	c.doubts = nil
}

func (j *lockJudge) sure(d *doubt, c *call) {
	if d.sure[c] {
		return
	}
	d.sure[c] = true
	if d.count++; d.count == len(d.sure) {
		j.findings = append(j.findings, fmt.Sprintf("%.3fs %s", d.at.Seconds(), d.text))
	}
}

// died notes that a process has been killed. Its waits vanish, and its locks end with their leases.
func (j *lockJudge) died(life string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	calls, now := j.open[life], j.now()
	delete(j.open, life)
	j.deaths++
	for _, c := range calls {
		k := j.keys[c.Key]
		switch c.Step {
		case asks:
			j.vanished++
			k.unsure(now, c)
			k.wait(c, -1, now)
		case has, holds:
			j.orphans++
			j.letGo(c, k, false, now)
			for _, d := range c.doubts {
				if d.at < c.until {
					j.sure(d, c)
				}
			}
		case letsGo:
			k.unsure(now, c)
		}
	}
}

// finish has the judge hear no more.
func (j *lockJudge) finish() {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now()
	for _, k := range j.keys {
		if k.isFree {
			j.idle = append(j.idle, k.idle(now, "nobody until the end"))
		}
	}
	clear(j.open)
}

// watch notes when the machine is so busy that this process does not run for a while: locks may be lost then, as requests
// may fail.
func (j *lockJudge) watch(ctx context.Context) {
	trial.Starving(ctx, j.now, func(since, by time.Duration) {
		if by > trial.TooLate {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.busy = append(j.busy, outage{since, since + by})
		}
	})
}
