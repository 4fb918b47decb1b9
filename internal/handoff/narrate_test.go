package handoff

import (
	"fmt"
	"github.com/keyway-go/keyway/internal/records"
	"strings"
	"time"
)

// narrate says in words what an effect is; "" for the heartbeat's.
func narrate(e Effect) string {
	switch e := e.(type) {
	case FetchGeneration:
		return "fetch the generation"
	case Register:
		return fmt.Sprintf("register in %s%s", e.Generation, holdings(e.Holdings))
	case Apply:
		return "apply " + changes(e.Changes)
	case Clear:
		return fmt.Sprintf("clear p%d %s", e.Partition, residue(e.Residue))
	case Release:
		return "release the session of " + e.Incarnation
	case ClearLocks:
		var s strings.Builder
		s.WriteString("clear the locks of")
		for _, m := range e.Moves {
			s.WriteString(fmt.Sprintf(" p%d at epoch %d", m.Partition, m.Epoch))
		}
		return s.String()
	case WriteLocks:
		var s strings.Builder
		s.WriteString("write locks:")
		for _, w := range e.Writes {
			fmt.Fprintf(&s, " p%d at epoch %d, number %d:%s", w.Partition, w.Number.Epoch, w.Number.Number, writtenList(w.Locks))
		}
		return s.String()
	case LocksWritten:
		return fmt.Sprintf("written in p%d:%s", e.Partition, writtenList(e.Locks))
	case OpenTable:
		s := fmt.Sprintf("open p%d at epoch %d", e.Partition, e.Epoch)
		if len(e.Blocked) > 0 {
			s += ", blocked: " + strings.Join(keysOf(e.Blocked), " ")
		}
		switch {
		case e.Locks != "" && e.Renewable:
			s += ", locked: " + lockList(e.Locks)
		case e.Locks != "":
			s += ", kept from others: " + lockList(e.Locks)
		}
		if len(e.Written) > 0 {
			s += ", written:" + writtenList(e.Written)
		}
		return s
	case LocksMoved:
		return fmt.Sprintf("drop the locks of p%d: they have moved", e.Partition)
	case CloseTable:
		return fmt.Sprintf("close p%d", e.Partition)
	case Advance:
		return fmt.Sprintf("advance p%d to epoch %d", e.Partition, e.Epoch)
	case Unblock:
		return fmt.Sprintf("unblock p%d %s", e.Partition, e.Key)
	case CancelHandlers:
		if e.All {
			return "cancel all handlers"
		}
		return fmt.Sprintf("cancel the handlers of p%d", e.Partition)
	case Owner:
		return fmt.Sprintf("p%d is %s", e.Partition, record(e.Record))
	case LeaseChanged:
		if e.Lease == (Lease{}) {
			return "admit nothing"
		}
		return ""
	case Lost:
		return fmt.Sprintf("lost: %v", e.Err)
	case Done:
		return "done"
	}
	return ""
}

func (m *message) String() string { return fmt.Sprintf("%s's call (%s)", m.by, describe(m.call)) }

// describe says in words what a call is.
func describe(e Effect) string {
	switch e.(type) {
	case Renew:
		return "renew"
	case Observe:
		return "observe"
	}
	return narrate(e)
}

func record(r records.Record) string {
	if r.Owner == "" {
		return fmt.Sprintf("{%d, nobody}", r.Epoch)
	}
	return fmt.Sprintf("{%d, %s}", r.Epoch, r.Owner)
}

func token(t int64) string { return fmt.Sprintf("%d.%d", t>>20, t&(1<<20-1)) }

func residue(rs []records.Residue) string {
	var s []string
	for _, r := range rs {
		s = append(s, fmt.Sprintf("%s@%s:%s", r.Key, r.Holder, token(r.Token)))
	}
	return strings.Join(s, " ")
}

func lockList(text string) string {
	var s []string
	for _, l := range listedLocks(text) {
		s = append(s, fmt.Sprintf("%s:%s", keyName(l.key), token(l.token)))
	}
	return strings.Join(s, " ")
}

func writtenList(locks []records.WrittenLock) string {
	var s strings.Builder
	for _, l := range locks {
		if s.WriteString(" "); l.Text == "" {
			s.WriteString("not ")
		}
		s.WriteString(l.ID)
	}
	return s.String()
}

func holdings(hs []records.Holding) string {
	var s strings.Builder
	for _, h := range hs {
		fmt.Fprintf(&s, ", p%d", h.Partition)
		if h.Epoch > 0 {
			fmt.Fprintf(&s, " at epoch %d", h.Epoch)
		}
		if len(h.Residue) > 0 {
			fmt.Fprintf(&s, " residue %s", residue(h.Residue))
		}
	}
	return s.String()
}

func changes(cs []records.Change) string {
	var s []string
	for _, c := range cs {
		d := fmt.Sprintf("%v p%d from %s", c.Op, c.Partition, record(c.From))
		if c.To != "" {
			d += " to " + c.To
		}
		if len(c.Residue) > 0 {
			d += " residue " + residue(c.Residue)
		}
		if c.Locks != "" {
			d += " locks " + lockList(c.Locks)
		}
		s = append(s, d)
	}
	return strings.Join(s, "; ")
}

// clockText prints true time in parts of the TTL.
func clockText(t, ttl time.Duration) string {
	return fmt.Sprintf("%.2f TTL", float64(t)/float64(ttl))
}

func keysOf(list []records.Residue) (keys []string) {
	for _, r := range list {
		keys = append(keys, r.Key)
	}
	return keys
}
