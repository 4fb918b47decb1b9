package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// service is a lock service, and the token that its clients have.
type service struct{ url, token string }

// useService takes, renews and gives back locks of a lock service until ctx ends. Some are not
// given back, and some are for longer than a session lasts. Of two clients of one key one waits.
func useService(ctx context.Context, at, tokenFile string) error {
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return err
	}
	s := service{at, strings.TrimSpace(string(token))}
	var running sync.WaitGroup
	defer running.Wait()
	for i := range lockers {
		running.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				ttl := time.Second
				if n%8 == 1 {
					ttl = time.Minute
				}
				s.hold(ctx, fmt.Sprint("locked-", i%2), ttl, n%16 == 0)
			}
		})
	}
	<-ctx.Done()
	return nil
}

// hold holds a key for a while. Failures are what the metrics count.
func (s *service) hold(ctx context.Context, key string, ttl time.Duration, forget bool) {
	var got struct{ Lease string }
	path := "/v1/locks/" + key
	if s.call(ctx, http.MethodPost, path, url.Values{"ttl": {ttl.String()}, "wait": {"10s"}, "label": {"deploy-test"}}, &got) != nil {
		time.Sleep(lockedFor) // the routers restart
		return
	}
	lease := url.Values{"lease": {got.Lease}}
	time.Sleep(lockedFor)
	_ = s.call(ctx, http.MethodGet, path, nil, nil)
	_ = s.call(ctx, http.MethodPut, path, lease, nil)
	if !forget {
		_ = s.call(context.WithoutCancel(ctx), http.MethodDelete, path, lease, nil)
	}
}

// call sends a request, and decodes the answer to it into answer unless that is nil.
func (s *service) call(ctx context.Context, method, path string, query url.Values, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.url+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	if got.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s", method, path, got.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(got.Body).Decode(answer)
}
