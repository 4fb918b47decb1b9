package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	silence   = 1500 * time.Millisecond // without an answer, after which a call counts as failed though it goes on
	sayAgain  = 10 * time.Second        // between two warnings of one cause, in two absences
	maxCauses = 16                      // that are remembered
)

// presence is whether the store can be used, as its calls show. It is present until a call fails, and again when one
// succeeds. Any goroutine may note a call.
type presence struct {
	place    string       // the servers' addresses, without a password
	password string       // which no text may show
	logger   *slog.Logger // names the place

	mu      sync.Mutex           // guards what follows
	since   time.Time            // when the first call was made that failed; zero while the store is present
	trouble error                // of the latest call that failed, while the store is absent
	said    map[string]time.Time // by cause: when it was last logged
	told    bool                 // this absence was logged
}

// call carries out f, which asks the server, and notes whether that answers. go-redis heeds a context's deadline but not
// its cancellation, so f is left behind when ctx ends; the client's timeouts bound it.
func call[T any](ctx context.Context, s *Store, f func() (T, error)) (value T, err error) {
	if err := ctx.Err(); err != nil {
		return value, err
	}
	type reply struct {
		value T
		err   error
	}
	done, began := make(chan reply, 1), time.Now()
	if !s.background(func() {
		value, err := f()
		done <- reply{value, err}
	}) {
		return value, ErrClosed
	}
	late := time.NewTimer(silence)
	defer late.Stop()
	for {
		select {
		case <-late.C:
			s.presence.note(os.ErrDeadlineExceeded, began)
		case <-ctx.Done():
			s.presence.note(ctx.Err(), began)
			return value, ctx.Err()
		case <-s.closing.Done():
			return value, ErrClosed
		case r := <-done:
			if s.closing.Err() == nil {
				s.presence.note(r.err, began)
			}
			return r.value, r.err
		}
	}
}

// note notes the end of a call that began then.
func (p *presence) note(err error, began time.Time) {
	if errors.Is(err, context.Canceled) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if err == nil || errors.Is(err, redis.Nil) {
		if p.told {
			p.logger.Warn("the store can be used again", "away", now.Sub(p.since).Round(time.Millisecond))
		}
		p.since, p.trouble, p.told = time.Time{}, nil, false
		return
	}
	if p.since.IsZero() {
		p.since = began
	}
	p.trouble = p.wrap(err)
	why, remedy := causeOf(err)
	if last, ok := p.said[why]; ok && (last.After(p.since) || now.Sub(last) < sayAgain) {
		return
	}
	if p.said == nil || len(p.said) >= maxCauses {
		p.said = make(map[string]time.Time)
	}
	p.said[why], p.told = now, true
	p.logger.Warn("the store cannot be used", "cause", p.hide(why), "hint", remedy)
}

// Trouble returns why the store cannot be used, as far as the latest calls have shown, and nil if it answers.
func (s *Store) Trouble() error {
	s.presence.mu.Lock()
	defer s.presence.mu.Unlock()
	return s.presence.trouble
}

// unusable is the error of a call to a store that cannot be used.
type unusable struct {
	text string
	err  error
}

func (u *unusable) Error() string { return u.text }
func (u *unusable) Unwrap() error { return u.err }

// wrap returns the error of a call that the store has not answered. It says where the store is and what to do.
func (p *presence) wrap(err error) error {
	why, remedy := causeOf(err)
	return &unusable{p.hide(fmt.Sprintf("store: the Redis at %s cannot be used: %s: %s", p.place, why, remedy)), err}
}

func (p *presence) hide(text string) string {
	if p.password == "" {
		return text
	}
	return strings.ReplaceAll(text, p.password, "(password)")
}

// causeOf returns why a call has failed, in words that stay the same from call to call, and what to do about it.
func causeOf(err error) (why, remedy string) {
	if answer, ok := errors.AsType[redis.Error](err); ok {
		text, _, _ := strings.Cut(answer.Error(), " script: ") // a digest follows
		text = text[:min(len(text), 200)]
		code, _, _ := strings.Cut(text, " ")
		return text, cmp.Or(map[string]string{
			"NOAUTH":     "give the password in the URL of --redis (Config.Redis)",
			"WRONGPASS":  "correct user and password in the URL of --redis (Config.Redis)",
			"NOPERM":     "allow the user of --redis (Config.Redis) all commands on keys that begin with {keyway:",
			"LOADING":    "wait until it has loaded its data",
			"READONLY":   "it is a replica: give --redis (Config.Redis) the primary's address, or a Sentinel's",
			"OOM":        "it is full: raise its maxmemory",
			"MISCONF":    "it cannot write to its disk: see its log",
			"MASTERDOWN": "it is a replica without a primary: give --redis (Config.Redis) the primary's address, or a Sentinel's",
		}[code], "see the server's log")
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Sprintf("the host name %q does not resolve: %s", name.Name, name.Err), "correct the host in --redis (Config.Redis), or its DNS"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return "it does not answer", "see whether it runs, and whether a firewall drops packets to it"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok { // without the addresses, of which one changes
		return op.Op + ": " + op.Err.Error(), "see whether a Redis runs there, and correct --redis (Config.Redis)"
	}
	if errors.Is(err, io.EOF) {
		return "it closes connections without an answer", "see whether a Redis runs there, whether it wants TLS (rediss://), and its log"
	}
	return err.Error(), "correct --redis (Config.Redis)"
}
