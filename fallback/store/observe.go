package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/internal/records"
)

// content is what a handle knows of a generation's incarnations as of a version. It never
// changes: the snapshots of that version share its slices.
type content struct {
	generation string
	version    int64
	full       time.Time // when all of it was read
	members    map[string]member
	sessions   []records.SessionState
	gone       []records.Stamp
	released   []string
	notes      records.Notes
}

// member is an incarnation that has a session, or whose session ran out or was released.
type member struct {
	session *records.SessionState
	stamp   int64 // of its latest renewal; 0 if it was released
}

// fullEvery is how long a handle adds to its incarnations. Then it reads all, and so forgets what the store has
// forgotten.
const fullEvery = time.Hour

// Observe returns the sessions, the tombstones, and the partitions that changed after a version;
// all of them if the version is 0 or of an earlier generation. It returns the locks of the
// incarnation's partitions only.
//
// If the handle already knows that version and there are no suspects, Observe first asks for the
// present generation and version, with three commands and no script. It reads the changes only if
// one of them differs. It skips this step after a hint of a change, and in a Redis Cluster, where
// only scripts read the clock of one server.
func (s *Store) Observe(ctx context.Context, gen, incarnation string, since int64, suspects []string) (records.Snapshot, error) {
	known, hinted := s.content.Load(), s.hinted.Load()
	if known.generation == gen && known.version == since && hinted <= since && len(suspects) == 0 && !s.sharded {
		snapshot, err := s.readUnchanged(ctx, known)
		if err != nil || snapshot.Version == since && snapshot.Generation == gen {
			return snapshot, err
		}
	}
	if known.generation != gen || since == 0 || time.Since(known.full) > fullEvery {
		known = &content{full: time.Now()}
	}
	args := []any{incarnation, since, known.version}
	for _, inc := range suspects {
		args = append(args, inc)
	}
	changed, err := ask(ctx, s, s.client, "observe", gen, args, readChanges)
	if err != nil {
		return records.Snapshot{}, err
	}
	next := known.after(changed)
	s.keep(next)
	s.hinted.CompareAndSwap(hinted, 0)
	next.tell(&changed.Snapshot)
	return changed.Snapshot, nil
}

// readUnchanged returns the snapshot of a store that has not changed since the version of known. If it has
// changed, only Generation and Version are right.
func (s *Store) readUnchanged(ctx context.Context, known *content) (records.Snapshot, error) {
	var meta *redis.SliceCmd
	var clock *redis.TimeCmd
	if _, err := call(ctx, s, func() ([]redis.Cmder, error) {
		return s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Persist(ctx, s.keys[0]) // fails on a master that was demoted
			meta = p.HMGet(ctx, s.keys[0], "generation", "version", "beat", "quarantine", "clock", "lag")
			clock = p.Time(ctx)
			return nil
		})
	}); err != nil {
		return records.Snapshot{}, s.handle.Failed("look", err)
	}
	text := func(i int) string { v, _ := meta.Val()[i].(string); return v } // what is not there is nil
	number := func(i int) int64 { n, _ := strconv.ParseInt(text(i), 10, 64); return n }
	now := max(clock.Val().UnixMilli()+number(5), number(4)) // as in prelude.lua
	snapshot := records.Snapshot{
		Generation: text(0),
		Version:    number(1),
		Beat:       number(2),
		Quarantine: duration(max(0, number(3)-now)),
		Now:        duration(now),
	}
	known.tell(&snapshot)
	return snapshot, nil
}

// duration is a time in Redis' unit.
func duration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// keep remembers a content, unless another Observe has brought a later one.
func (s *Store) keep(c *content) {
	for known := s.content.Load(); known.generation != c.generation || known.version <= c.version; known = s.content.Load() {
		if s.content.CompareAndSwap(known, c) {
			return
		}
	}
}

// tell fills in what a snapshot shows of incarnations.
func (c *content) tell(s *records.Snapshot) {
	s.Sessions, s.Gone, s.Released, s.Notes = c.sessions, c.gone, c.released, c.notes
}

func (c *content) after(change changes) *content {
	next := *c
	next.generation, next.version = change.Generation, change.Version
	for n, text := range change.notes {
		if text != nil {
			next.notes[n] = *text
		}
	}
	if len(change.members) == 0 {
		return &next
	}
	next.members = make(map[string]member)
	maps.Copy(next.members, c.members)
	maps.Copy(next.members, change.members)
	next.sessions, next.gone, next.released = nil, nil, nil
	for _, inc := range slices.Sorted(maps.Keys(next.members)) {
		switch m := next.members[inc]; {
		case m.session != nil:
			next.sessions = append(next.sessions, *m.session)
		case m.stamp != 0:
			next.gone = append(next.gone, records.Stamp{Incarnation: inc, Beat: m.stamp})
		default:
			next.released = append(next.released, inc)
		}
	}
	return &next
}

// changes are the reply to observe.lua: a snapshot, and the incarnations and notes that have changed.
type changes struct {
	records.Snapshot
	members map[string]member
	notes   [len(records.Notes{})]*string // nil for those that are as before
}

func readChanges(f *stores.Fields) changes {
	c := changes{Snapshot: readMoment(f), members: make(map[string]member)}
	f.Each(func(list *stores.Fields) {
		inc := list.Text()
		c.members[inc] = readMember(list, inc)
	})
	f.Each(func(list *stores.Fields) {
		c.Stamps = append(c.Stamps, records.Stamp{Incarnation: list.Text(), Beat: list.Number()})
	})
	for n := range c.notes {
		f.Each(func(list *stores.Fields) { c.notes[n] = new(list.Text()) })
	}
	c.Partitions = readPartitions(f)
	return c
}

// readMoment reads a snapshot without its lists.
func readMoment(f *stores.Fields) (s records.Snapshot) {
	s.Generation = f.Text()
	s.Quarantine = duration(f.Number())
	s.Version, s.Beat = f.Number(), f.Number()
	s.Now = duration(f.Number())
	return s
}

// readMember reads the details of a session, if there is one, and its stamp, 0 if it is released.
func readMember(f *stores.Fields, inc string) (m member) {
	details := f.Text()
	if m.stamp = f.Number(); details != "" {
		session, err := stores.ReadSession(inc, details)
		m.session = &session
		f.Err = cmp.Or(f.Err, err)
	}
	return m
}
