package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/keyway-go/keyway/localmutex/locking"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// httpLock is a lock of the router's lock service.
type httpLock struct {
	service *lockService
	path    string // with the keys
	id      string // for Idempotency-Key
	lease   time.Duration
	tokens  map[string]int64
	until   time.Time
	gone    bool // the service says so
}

// lockService takes locks over HTTP.
type lockService struct {
	base string // URL
	http *http.Client
}

func (s *lockService) lock(ctx context.Context, w lockWish) (keeping, error) {
	if w.leaves > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.leaves, errNotTaken)
		defer cancel()
	}
	l := &httpLock{service: s, path: "/v1/locks?" + url.Values{"key": w.keys}.Encode(), id: rand.Text(), lease: w.lease}
	query := fmt.Sprintf("&ttl=%v&wait=%v", w.lease, w.lease)
	if len(w.keys) == 1 {
		l.path = "/v1/locks/" + url.PathEscape(w.keys[0]) + "?"
	}
	if w.read {
		query += "&mode=read"
	}
	sent := time.Now()
	status, err := l.ask(ctx, http.MethodPost, query, sent)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	case status == http.StatusLocked:
		return nil, errNotTaken
	case status != http.StatusOK:
		return nil, fmt.Errorf("the lock service answers %d", status)
	}
	if time.Since(sent) > l.lease/20 { // it has waited, and so does not know from when on its time counts
		l.until = sent
		l.extend(ctx)
	}
	return l, nil
}

// ask makes a request, and takes what the lock has for its answer. It was sent then, or later.
func (l *httpLock) ask(ctx context.Context, method, query string, sent time.Time) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, l.service.base+l.path+query, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Idempotency-Key", l.id)
	res, err := l.service.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil || res.StatusCode != http.StatusOK {
		return res.StatusCode, err
	}
	var answer struct {
		Key    string           `json:"key"`
		Token  int64            `json:"token"`
		Tokens map[string]int64 `json:"tokens"`
		TTL    int64            `json:"ttl_ms"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return res.StatusCode, err
	}
	if l.tokens = answer.Tokens; l.tokens == nil {
		l.tokens = map[string]int64{answer.Key: answer.Token}
	}
	l.until = sent.Add(time.Duration(answer.TTL) * time.Millisecond)
	return res.StatusCode, nil
}

// extend has the lock last for its lease from now on.
func (l *httpLock) extend(ctx context.Context) {
	status, err := l.ask(ctx, http.MethodPut, fmt.Sprintf("&ttl=%v", l.lease), time.Now())
	l.gone = l.gone || err == nil && status == http.StatusGone
}

func (l *httpLock) TokenOf(key string) int64 { return l.tokens[key] }
func (l *httpLock) Until() time.Time         { return l.until }
func (l *httpLock) Lost() bool               { return l.gone || !time.Now().Before(l.until) }

func (l *httpLock) Keep(ctx context.Context) {
	if time.Until(l.until) < 2*l.lease/3 {
		l.extend(ctx)
	}
}

// Unlock repeats itself until there is an answer. After one that was lost it does not know what the lock was.
func (l *httpLock) Unlock(ctx context.Context) error {
	for doubtful := false; ; doubtful = true {
		status, err := l.ask(ctx, http.MethodDelete, "", time.Now())
		switch gone := err == nil && status == http.StatusGone; {
		case err == nil && status == http.StatusNoContent:
			return nil
		case gone && !doubtful:
			return fmt.Errorf("%w: the lock service says so", locking.ErrNotOwner)
		case gone, !trial.Sleep(ctx, 50*time.Millisecond):
			return fmt.Errorf("%w: the lock service answers %d (%v)", locking.ErrUnlockUnknown, status, err)
		}
	}
}
