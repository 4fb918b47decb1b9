package conformance

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/test/kit"
)

// TestClients tries each client by itself.
func TestClients(t *testing.T) {
	s := newSite(t)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			c.need(t)
			for _, test := range []struct {
				name string
				run  func(*stage)
			}{
				{"Refused", refused}, {"Waits", waits}, {"Cancelled", cancelled}, {"SeveralKeys", severalKeys},
				{"Renewed", renewed}, {"Expires", expires}, {"Ended", ended}, {"AnswersLost", answersLost}, {"AnswersLate", answersLate},
				{"Repeated", repeated}, {"Garbled", garbled}, {"OtherRouter", otherRouter}, {"NoRouter", noRouter},
				{"NoAccess", noAccess}, {"NoRenewal", noRenewal}, {"Strayed", strayed}, {"Dripped", dripped}, {"Hinted", hinted},
			} {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					test.run(&stage{site: &site{t: t, http: s.http}, client: c, key: fmt.Sprintf("%s %s/%%2F&?", c.name, test.name)})
				})
			}
		})
	}
}

// stage is where a client is tried, with a key of its own.
type stage struct {
	*site
	client client
	key    string
}

// driver starts a driver behind a proxy.
func (s *stage) driver(next func(*http.Request) fate) (*driver, *proxy) {
	p := s.newProxy(next)
	return s.client.start(s.t, settled.Seconds(), p), p
}

func (s *stage) wish() wish { return wish{keys: []string{s.key}} }

// says sees that an error's text matches a pattern.
func (s *stage) says(l line, pattern string) {
	s.t.Helper()
	if !regexp.MustCompile(pattern).MatchString(l.Text) {
		s.t.Errorf("the text of %s is %q, want %s", l.Error, l.Text, pattern)
	}
}

// awaitFree waits until nobody has the key.
func (s *stage) awaitFree() {
	s.t.Helper()
	kit.Eventually(s.t, "the key is free", func() bool { return !s.state(s.key).Held })
}

// refused: a key that is held is refused at once, with its holder.
func refused(s *stage) {
	d, p := s.driver(faithful)
	held, first := d.lock("", s.wish())
	_, l := d.lock("Locked", s.wish())
	s.says(l, regexp.QuoteMeta(s.key)+`.* is locked for another [0-9.]+s by one of `+s.client.name+`: .*later`)
	d.must("", held, "check")
	d.must("", held, "unlock")
	d.must("Lost", held, "check")
	d.must("", held, "unlock")
	if posts, deletes := p.count(http.MethodPost), p.count(http.MethodDelete); posts != 2 || deletes != 1 {
		s.t.Errorf("%d requests to lock and %d to unlock, want 2 and 1", posts, deletes)
	}
	held, second := d.lock("", s.wish())
	if second.Tokens[s.key] <= first.Tokens[s.key] {
		s.t.Errorf("token %d after %d", second.Tokens[s.key], first.Tokens[s.key])
	}
	d.must("", held, "unlock")
}

// waits: a caller waits for as long as it says, and for the lock's ttl to begin after that.
func waits(s *stage) {
	d, _ := s.driver(faithful)
	held, _ := d.lock("", s.wish())
	d.lock("Locked", wish{wait: 0.3, keys: []string{s.key}})
	next := d.beginLock(wish{wait: 60, ttl: 1, keys: []string{s.key}})
	kit.Eventually(s.t, "a caller waits", func() bool { return s.state(s.key).Waiting == 1 })
	time.Sleep(1500 * time.Millisecond) // for longer than its ttl
	d.must("", held, "unlock")
	if l := d.end(next); l.Error != "" {
		s.t.Fatal(l.Text)
	}
	d.must("", next, "check")
	d.must("", next, "unlock")
}

// cancelled: a caller that is told to stop waiting leaves nothing.
func cancelled(s *stage) {
	d, _ := s.driver(faithful)
	held, _ := d.lock("", s.wish())
	waiting := d.beginLock(wish{wait: forever, keys: []string{s.key}})
	kit.Eventually(s.t, "a caller waits", func() bool { return s.state(s.key).Waiting == 1 })
	d.of(waiting, "cancel")
	if l := d.end(waiting); l.Error != "Cancelled" {
		s.t.Errorf("a cancelled wait ends with %q %s", l.Error, l.Text)
	}
	kit.Eventually(s.t, "nobody waits", func() bool { return s.state(s.key).Waiting == 0 })
	d.must("", held, "unlock")
	s.awaitFree()
}

// severalKeys: all keys or none, and readers together.
func severalKeys(s *stage) {
	d, _ := s.driver(faithful)
	other := s.key + " too"
	both := wish{keys: []string{s.key, other}}
	held, l := d.lock("", both)
	if l.Tokens[s.key] == 0 || l.Tokens[other] == 0 {
		s.t.Errorf("the tokens are %v", l.Tokens)
	}
	d.lock("Locked", wish{keys: []string{other}})
	d.must("", held, "unlock")
	reader := wish{keys: []string{other}, read: true}
	one, _ := d.lock("", reader)
	two, _ := d.lock("", reader)
	d.lock("Locked", both)
	s.awaitFree()
	d.must("", one, "unlock")
	d.must("", two, "unlock")
}

// renewed: a lock outlives its ttl, also if every second request or its answer is lost.
func renewed(s *stage) {
	n := 0
	d, p := s.driver(func(*http.Request) fate {
		n++
		return fate{drop: n%4 == 1, lose: n%4 == 3}
	})
	held, l := d.lock("", wish{ttl: 2, keys: []string{s.key}})
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if got := s.state(s.key); !got.Held || got.Token != l.Tokens[s.key] {
			s.t.Fatalf("the key is %+v, want it held with token %d", got, l.Tokens[s.key])
		}
	}
	d.must("", held, "check")
	p.set(faithful)
	d.must("", held, "unlock")
	select {
	case <-d.lostOf(held):
		s.t.Error("an unlocked key is renewed")
	case <-time.After(2 * time.Second):
	}
}

// expires: a holder that reaches no router knows it before others get the key.
func expires(s *stage) {
	d, p := s.driver(faithful)
	good, _ := s.driver(faithful)
	held, first := d.lock("", wish{ttl: 5, keys: []string{s.key}})
	p.set(func(*http.Request) fate { return fate{silence: true} })
	next := good.beginLock(wish{wait: 60, keys: []string{s.key}})
	d.awaitLost(held)
	if st := s.state(s.key); st.Token != first.Tokens[s.key] {
		s.t.Error("the key was free before its holder knew")
	}
	second := good.end(next)
	if l := d.of(held, "left"); second.Error != "" || second.Tokens[s.key] <= first.Tokens[s.key] || l.Left > 0 {
		s.t.Errorf("token %d after %d, whose lock has %.2fs left (%s)", second.Tokens[s.key], first.Tokens[s.key], l.Left, second.Text)
	}
	d.must("Lost", held, "check")
	p.set(faithful)
	d.must("Lost", held, "unlock")
	good.must("", next, "unlock")
	again, _ := d.lock("", s.wish())
	d.must("", again, "unlock")
}

// ended: a holder learns that its lock was ended, and may lock the key again.
func ended(s *stage) {
	d, p := s.driver(faithful)
	held, first := d.lock("", s.wish())
	id := p.requests()[0].id
	res, err := s.forward(s.t.Context(), http.MethodDelete, "/v1/locks?key="+url.QueryEscape(s.key), http.Header{"Idempotency-Key": {id}, "Authorization": {"Bearer " + token}})
	if err != nil || res.StatusCode != http.StatusNoContent {
		s.t.Fatal(res, err)
	}
	res.Body.Close()
	d.awaitLost(held)
	d.must("Lost", held, "check")
	if l := d.of(held, "left"); l.Left > 0 {
		s.t.Errorf("a lock that was ended has %.2fs left", l.Left)
	}
	again, second := d.lock("", s.wish())
	if second.Tokens[s.key] <= first.Tokens[s.key] {
		s.t.Errorf("token %d after %d", second.Tokens[s.key], first.Tokens[s.key])
	}
	d.must("", again, "unlock")
}

// answersLost: a repeated call answers as one call does.
func answersLost(s *stage) {
	n := 0
	lose := func(*http.Request) fate {
		n++
		return fate{lose: n%3 != 0}
	}
	d, p := s.driver(lose)
	held, l := d.lock("", wish{ttl: 30, keys: []string{s.key}})
	all := p.requests()
	for _, r := range all {
		if r != all[0] {
			s.t.Errorf("a lock is asked for by %v", all)
		}
	}
	if st := s.state(s.key); len(all) != 3 || st.Token != l.Tokens[s.key] {
		s.t.Errorf("%d requests, the key is %+v, the lock has token %d", len(all), st, l.Tokens[s.key])
	}
	d.must("", held, "unlock")
	if s.state(s.key).Held {
		s.t.Error("the key is held in the end")
	}
	other, _ := d.lock("", s.wish())
	if ids := p.requests(); ids[len(ids)-1].id == all[0].id {
		s.t.Error("another lock has the same id")
	}
	d.must("", other, "unlock")
}

// answersLate: a lock whose lease is over when its answer comes is lost, and says so.
func answersLate(s *stage) {
	d, _ := s.driver(func(r *http.Request) fate {
		switch r.Method {
		case http.MethodPost:
			return fate{late: 500 * time.Millisecond} // so that the client asks when its lease began
		case http.MethodPut:
			return fate{late: 2200 * time.Millisecond}
		}
		return fate{}
	})
	held, _ := d.lock("", wish{ttl: 2, keys: []string{s.key}})
	d.awaitLost(held)
	d.must("Lost", held, "check")
	d.must("Lost", held, "unlock")
}

// repeated: copies of requests do not change a lock, and none of them locks a key again after its unlock.
func repeated(s *stage) {
	d, p := s.driver(func(*http.Request) fate { return fate{repeat: true, again: 300 * time.Millisecond} })
	for range 5 {
		held, l := d.lock("", wish{ttl: 30, keys: []string{s.key}})
		if st := s.state(s.key); st.Token != l.Tokens[s.key] {
			s.t.Errorf("the key is %+v, the lock has token %d", st, l.Tokens[s.key])
		}
		d.must("", held, "unlock")
	}
	p.copies.Wait()
	if st := s.state(s.key); st.Held {
		s.t.Errorf("a copy has locked the key: %+v", st)
	}
}

// garbled: an answer that cannot be read is as good as none.
func garbled(s *stage) {
	forMe := fmt.Sprintf(`,"tokens":{%q:1}}`, s.key)
	texts := []string{
		"", "{", "[]", `{"ttl_ms":9e99}`, `{"ttl_ms":5000,"tokens":{"another":1}}`, strings.Repeat("[", 1<<17),
		`{"ttl_ms":9e99` + forMe, `{"ttl_ms":1` + strings.Repeat("0", 400) + forMe,
	}
	d, p := s.driver(func(*http.Request) (f fate) {
		if len(texts) > 0 {
			f.garble, texts = &texts[0], texts[1:]
			if *f.garble == "" {
				f.status = http.StatusNoContent // is the answer to a DELETE only
			}
		}
		return f
	})
	held, l := d.lock("", wish{ttl: 30, keys: []string{s.key}})
	if st := s.state(s.key); st.Token != l.Tokens[s.key] || p.count(http.MethodPost) != 9 {
		s.t.Errorf("the key is %+v, the lock has token %d after %d requests", st, l.Tokens[s.key], p.count(http.MethodPost))
	}
	d.must("", held, "unlock")
}

// otherRouter: a router that does not answer is left for another one.
func otherRouter(s *stage) {
	bad := s.newProxy(func(*http.Request) fate { return fate{silence: true} })
	good := s.newProxy(faithful)
	for range 4 { // begins with either
		d := s.client.start(s.t, 4, bad, good)
		held, _ := d.lock("", s.wish())
		d.must("", held, "unlock")
	}
}

// noRouter: without an answer a call ends in time, and says what to look at.
func noRouter(s *stage) {
	d := s.client.startWith(s.t, settings{URLs: []string{"http://" + kit.FreeAddr(s.t)}, Timeout: 2})
	_, l := d.lock("Unavailable", s.wish())
	s.says(l, `(?i)no answer to POST in time, at last from http://127.*refused.*check the routers`)
	lost, p := s.driver(faithful)
	held, _ := lost.lock("", wish{ttl: 1, keys: []string{s.key}})
	p.set(func(*http.Request) fate { return fate{drop: true} })
	lost.must("Unavailable", held, "unlock")
	s.awaitFree() // by itself
}

// noAccess: a refusal says why, and is not repeated.
func noAccess(s *stage) {
	p := s.newProxy(faithful)
	d := s.client.startWith(s.t, settings{URLs: []string{p.url}, Token: "another", Timeout: 20})
	_, l := d.lock("Keyway", s.wish())
	s.says(l, `answers 401 .+`)
	if n := p.count(http.MethodPost); n != 1 {
		s.t.Errorf("%d requests, want 1", n)
	}
	text := "null"
	p.set(func(*http.Request) fate { return fate{garble: &text, status: http.StatusForbidden} })
	_, l = d.lock("Keyway", s.wish())
	s.says(l, `answers 403`)
}

// noRenewal: a lock whose first renewal is refused is not kept.
func noRenewal(s *stage) {
	d, p := s.driver(func(r *http.Request) (f fate) {
		switch r.Method {
		case http.MethodPost:
			f.late = time.Second // so that the client asks when its lease began
		case http.MethodPut:
			f.garble, f.status = new(string), http.StatusForbidden
		}
		return f
	})
	d.lock("Keyway", wish{ttl: 5, keys: []string{s.key}})
	s.awaitFree()
	if n := p.count(http.MethodDelete); n != 1 {
		s.t.Errorf("%d requests to unlock, want 1", n)
	}
}

// strayed: a router that refuses to renew a lock, as one of another cluster does, is left for another one.
func strayed(s *stage) {
	one, two := s.newProxy(faithful), s.newProxy(faithful)
	d := s.client.start(s.t, settled.Seconds(), one, two)
	held, _ := d.lock("", wish{ttl: 4, keys: []string{s.key}})
	if one.count(http.MethodPost) == 0 {
		one, two = two, one
	}
	two.set(func(*http.Request) fate { return fate{garble: new(string), status: http.StatusForbidden} })
	dropped := false
	one.set(func(*http.Request) fate {
		drop := !dropped
		dropped = true
		return fate{drop: drop}
	})
	select {
	case <-d.lostOf(held):
		s.t.Error("the lock is lost")
	case <-time.After(8 * time.Second):
	}
	d.must("", held, "check")
	if two.count(http.MethodPut) == 0 {
		s.t.Error("the other router was not asked")
	}
	two.set(faithful)
	d.must("", held, "unlock")
}

// dripped: an answer that does not end is as good as none.
func dripped(s *stage) {
	p := s.newProxy(func(*http.Request) fate { return fate{drip: true} })
	d := s.client.start(s.t, 3, p)
	d.lock("Unavailable", s.wish())
	p.set(faithful)
	held, _ := d.lock("", s.wish())
	p.set(func(*http.Request) fate { return fate{drip: true} })
	d.must("Unavailable", held, "unlock")
}

// hinted: an informational answer is none, and others may follow it.
func hinted(s *stage) {
	d, p := s.driver(func(*http.Request) fate { return fate{hint: true} })
	held, l := d.lock("", wish{ttl: 30, keys: []string{s.key}})
	if st := s.state(s.key); st.Token != l.Tokens[s.key] {
		s.t.Errorf("the key is %+v, the lock has token %d", st, l.Tokens[s.key])
	}
	d.must("", held, "unlock")
	if n := len(p.requests()); n != 2 {
		s.t.Errorf("%d requests, want 2", n)
	}
}
