package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/fallback/internal/stores"
)

// call runs f, which asks the server, and records whether the server answers. go-redis obeys a
// context's deadline but not its cancellation, so f is abandoned when ctx ends; the client's
// timeouts bound it.
func call[T any](ctx context.Context, s *Store, f func() (T, error)) (value T, err error) {
	if err := ctx.Err(); err != nil {
		return value, err
	}
	type reply struct {
		value T
		err   error
	}
	done, began := make(chan reply, 1), time.Now()
	if !s.handle.Go(func() {
		value, err := f()
		done <- reply{value, err}
	}) {
		return value, stores.ErrClosed
	}
	late := time.NewTimer(stores.Silence)
	defer late.Stop()
	for {
		select {
		case <-late.C:
			s.handle.Note(os.ErrDeadlineExceeded, began)
		case <-ctx.Done():
			s.handle.Note(ctx.Err(), began)
			return value, ctx.Err()
		case <-s.handle.Closing.Done():
			return value, stores.ErrClosed
		case r := <-done:
			switch {
			case s.handle.Closing.Err() != nil:
			case errors.Is(r.err, redis.Nil): // an answer
				s.handle.Note(nil, began)
			default:
				s.handle.Note(r.err, began)
			}
			return r.value, r.err
		}
	}
}

// Trouble returns why the store cannot be used, as far as the latest calls have shown, and nil if it answers.
func (s *Store) Trouble() error { return s.handle.Trouble() }

// causeOf returns why a call has failed, in words that stay the same from call to call, and what to do about it.
func causeOf(err error) (why, remedy string) {
	if answer, ok := errors.AsType[redis.Error](err); ok {
		text, _, _ := strings.Cut(answer.Error(), " script: ") // a digest follows
		text = text[:min(len(text), 200)]
		code, _, _ := strings.Cut(text, " ")
		if strings.Contains(text, "The user executing the script") { // Redis 7.0
			code = "NOPERM"
		}
		if strings.Contains(text, "DB index") {
			return text, "correct the database in the URL of --redis (Config.Redis)"
		}
		return text, cmp.Or(map[string]string{
			"NOAUTH":     "give the password in the URL of --redis (Config.Redis)",
			"WRONGPASS":  "correct user and password in the URL of --redis (Config.Redis)",
			"NOPERM":     "allow the user of --redis (Config.Redis) the commands, keys and channels of deploy/redis/users.acl",
			"LOADING":    "wait until it has loaded its data",
			"NOREPLICAS": "too few replicas follow it (min-replicas-to-write): see whether they run, and their masteruser and masterauth",
			"READONLY":   "it is a replica: give --redis (Config.Redis) the primary's address, or a Sentinel's",
			"TRYAGAIN":   "end the move of the cluster's slots (redis-cli --cluster fix)",
			"OOM":        "it is full: raise its maxmemory",
			"MISCONF":    "it cannot write to its disk: see its log",
			"MASTERDOWN": "it is a replica without a primary: give --redis (Config.Redis) the primary's address, or a Sentinel's",
		}[code], "see the server's log")
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Sprintf("the host name %q does not resolve: %s", name.Name, name.Err), "correct the host in --redis (Config.Redis), or its DNS"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return "it does not answer", "see whether it runs, whether a firewall drops packets to it, and whether it speaks TLS if --redis (Config.Redis) is rediss://"
	}
	if text := err.Error(); strings.Contains(text, "tls: ") {
		return text, "see whether it speaks TLS, and correct its ca, cert and key in the URL of --redis (Config.Redis)"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok { // without the addresses, of which one changes
		return op.Op + ": " + op.Err.Error(), "see whether a Redis runs there, and correct --redis (Config.Redis)"
	}
	if errors.Is(err, io.EOF) {
		return "it closes connections without an answer", "see whether a Redis runs there, whether it wants TLS (rediss://), and its log"
	}
	return err.Error(), "correct --redis (Config.Redis)"
}

// placeOf returns the addresses of options as people read them, without a password.
func placeOf(o *redis.UniversalOptions) string {
	place := strings.Join(o.Addrs, ", ")
	if o.MasterName != "" {
		place = fmt.Sprintf("the Sentinels %s (master %s)", place, o.MasterName)
	}
	if o.DB != 0 {
		place += fmt.Sprintf(" (database %d)", o.DB)
	}
	return place
}
