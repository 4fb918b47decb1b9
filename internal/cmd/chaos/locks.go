package main

import (
	"slices"
	"sync"
	"time"
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
	begin, end time.Duration // from then on it was asked for, and held; until then held
	until      time.Duration // see said
	told       time.Duration // when its unlock had ended
	had, sure  int           // what the judge had heard when it was had, and when its caller last said that it still is; 0 for never
	left       bool          // to the end of its lease, by a caller that still had it or is dead
}

// lasted reports whether the caller has said since that it still had the lock, or has left it.
func (c *call) lasted() bool { return c.sure > 0 || c.left }

// outlasts reports whether the call still held its lock when another one had got it.
func (c *call) outlasts(other *call) bool {
	return c.sure > other.had || c.left && other.begin < c.until
}

// idle is a time for which nothing kept a key from a caller that waited for it.
type idle struct {
	key        int
	free       time.Duration // since when nothing did
	begin, end time.Duration // begin is later than free if there may have been a lock for nobody until then
	extra      time.Duration // lease of that
	after      ending        // what made it free
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
	had     []*call // all that have had it
	holders []*call // more than one only for reading; those that forget it until the ends of their leases
	writers int     // that wait
	readers int     // likewise
	many    int     // of these, those that may hold it already
	isFree  bool    // for one that waits
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
	heard    int        // what callers have said
	keys     map[int]*lockKey
	open     map[string]map[int64]*call // by life
	ended    []*call
	idle     []idle
	failed   []*call
	findings []string // what went wrong besides locks
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
	j.heard++
	c := calls[s.Call]
	if s.Step == asks {
		if j.keys[s.Key] == nil {
			j.keys[s.Key] = &lockKey{number: s.Key}
		}
		c = &call{said: s, begin: now}
		calls[s.Call] = c
		j.keys[s.Key].wait(c, 1, now)
		return
	}
	k, until := j.keys[c.Key], now+time.Until(s.Until)
	switch s.Step {
	case has:
		c.Token, c.begin, c.until, c.had = s.Token, now, until, j.heard
		j.begin(c, k, now)
	case holds:
		c.until, c.sure = until, j.heard
	case letsGo, forgets:
		if c.Lost = s.Lost; !s.Lost {
			c.sure, c.left = j.heard, s.Step == forgets
		}
		k.letGo(c, s.Step == letsGo && !s.Lost, now)
	case unlocked:
		c.Lost, c.told = c.Lost || s.Lost, now
		if c.Err = s.Err; c.Lost || s.Err != "" {
			k.unsure(now, c)
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

// begin notes that a caller has a lock.
func (j *lockJudge) begin(c *call, k *lockKey, now time.Duration) {
	if k.isFree {
		j.idle = append(j.idle, k.idle(now))
	}
	k.holders = slices.DeleteFunc(k.holders, func(before *call) bool {
		return !before.Read || !c.Read || before.Step == forgets && before.until <= now
	})
	k.had, k.holders = append(k.had, c), append(k.holders, c)
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
func (k *lockKey) letGo(c *call, unlocks bool, now time.Duration) {
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

// idle returns for how long nothing has kept the key from its waiters.
func (k *lockKey) idle(now time.Duration) idle {
	i := idle{key: k.number, free: k.free, begin: k.free, end: now, after: k.after}
	if k.busy > k.free {
		i.begin, i.extra = k.busy, k.lease
	}
	return i
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
			c.left = true
			k.letGo(c, false, now)
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
			j.idle = append(j.idle, k.idle(now))
		}
	}
	clear(j.open)
}
