package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// fakeLease is a lock that nobody keeps.
type fakeLease struct {
	locking.Lease
	ctx   context.Context
	lose  context.CancelCauseFunc
	token int64
}

func newLease(token int64) *fakeLease {
	ctx, lose := context.WithCancelCause(context.Background())
	return &fakeLease{ctx: ctx, lose: lose, token: token}
}

func (l *fakeLease) Context() context.Context { return l.ctx }
func (l *fakeLease) Token() int64             { return l.token }

// What may not be with locks is found, and what may be is not.
func TestLockJudge(t *testing.T) {
	const ttl = 4 * time.Second
	away := []outage{{100 * time.Second, 110 * time.Second}}
	lose := func(j *lockJudge, x *tenure) {
		x.lease.(*fakeLease).lose(fmt.Errorf("%w: in a test", keyway.ErrOwnershipLost))
		j.letGo(x)
		j.end(x, locking.ErrNotOwner)
	}
	unlock := func(j *lockJudge, x *tenure) {
		j.letGo(x)
		j.end(x, nil)
	}
	for _, tt := range []struct {
		name, want string
		play       func(j *lockJudge, at *time.Duration)
	}{
		{"one after the other", "", func(j *lockJudge, _ *time.Duration) {
			unlock(j, j.begin(1, newLease(7)))
			unlock(j, j.begin(1, newLease(8)))
		}},
		{"two at once", "is held with token 7, and with 8", func(j *lockJudge, _ *time.Duration) {
			first := j.begin(1, newLease(7))
			unlock(j, j.begin(1, newLease(8)))
			unlock(j, first)
		}},
		{"one after another has lost it", "", func(j *lockJudge, at *time.Duration) {
			*at = 105 * time.Second
			first := j.begin(1, newLease(7))
			first.lease.(*fakeLease).lose(keyway.ErrOwnershipLost)
			unlock(j, j.begin(1, newLease(8)))
			lose(j, first)
		}},
		{"a token falls", "token 7 after 8", func(j *lockJudge, _ *time.Duration) {
			unlock(j, j.begin(1, newLease(8)))
			unlock(j, j.begin(1, newLease(7)))
		}},
		{"lost with its owner", "", func(j *lockJudge, at *time.Duration) {
			*at = 99 * time.Second
			x := j.begin(1, newLease(7))
			*at = 103 * time.Second
			lose(j, x)
		}},
		{"lost in a planned move", "was lost though its owner was there", func(j *lockJudge, at *time.Duration) {
			*at = 50 * time.Second
			lose(j, j.begin(1, newLease(7)))
		}},
		{"granted late, without an owner", "", func(j *lockJudge, at *time.Duration) {
			*at = 99 * time.Second
			x := j.begin(1, newLease(7))
			j.wait(1, 1)
			unlock(j, x)
			*at = 113 * time.Second
			unlock(j, j.begin(1, newLease(8)))
		}},
		{"granted late", "was free and waited for since 50.000s", func(j *lockJudge, at *time.Duration) {
			*at = 50 * time.Second
			x := j.begin(1, newLease(7))
			j.wait(1, 1)
			unlock(j, x)
			*at += grantTime + 1
			unlock(j, j.begin(1, newLease(8)))
		}},
		{"granted late to one who came late", "", func(j *lockJudge, at *time.Duration) {
			unlock(j, j.begin(1, newLease(7)))
			*at += grantTime + 1
			j.wait(1, 1)
			unlock(j, j.begin(1, newLease(8)))
		}},
		{"lost on a machine that was too busy", "", func(j *lockJudge, at *time.Duration) {
			j.starved = []outage{{48 * time.Second, 49 * time.Second}}
			*at = 50 * time.Second
			lose(j, j.begin(1, newLease(7)))
		}},
		{"refused", "asked for since 1.000s", func(j *lockJudge, at *time.Duration) {
			unlock(j, j.begin(1, newLease(7)))
			*at = 50 * time.Second
			j.fail(1, time.Second, keyway.ErrUnavailable)
		}},
		{"nothing", "nothing was locked", func(*lockJudge, *time.Duration) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := time.Second
			j := &lockJudge{now: func() time.Duration { return at }}
			tt.play(j, &at)
			got := strings.Join(j.violations(away, ttl), "\n")
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
