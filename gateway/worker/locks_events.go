package worker

import (
	"context"
	"log/slog"
)

// lockEvent is something that happens to a lock, and is counted.
type lockEvent uint8

const (
	lockGranted lockEvent = iota
	lockRenewed
	lockReleased
	lockExpired
	lockMovedIn
	lockMovedOut
	lockLost   // with its partition
	lockForced // released by an operator
	lockEvents
)

func (e lockEvent) String() string {
	return [lockEvents]string{"granted", "renewed", "released", "expired", "moved-in", "moved-out", "lost", "forced"}[e]
}

// tell counts an event of a lock, and logs it: above the level debug what its holder has not
// brought about.
func (ls *locks) tell(l *lock, event lockEvent) {
	ls.events[event].Add(1)
	level, message := slog.LevelDebug, ""
	switch event {
	case lockForced:
		return // forceLocks has logged who has done it
	case lockGranted:
		message = "a key is held for another member"
	case lockRenewed:
		message = "a key goes on being held for another member"
	case lockReleased:
		message = "a key is held for another member no more: it was released"
	case lockMovedIn:
		message = "a key that another member holds has come with its partition"
	case lockMovedOut:
		message = "a key that another member holds has gone with its partition"
	case lockExpired:
		level, message = slog.LevelWarn, "a key was held for another member that has not been heard of for the time of its lease: it is free again"
	case lockLost:
		level, message = slog.LevelWarn, "a key that another member holds is lost to it: its partition was served by others, or the session of this worker was lost"
	}
	if log := ls.worker.log; log.Enabled(context.Background(), level) {
		log.Log(context.Background(), level, message, "key", l.key, "token", l.token, "label", l.label, "from", l.from)
	}
}
