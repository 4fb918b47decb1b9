package stores

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// ErrClosed means that the store was closed.
var ErrClosed = errors.New("store: closed")

// Silence is how long a call may go unanswered before it counts as failed, although it continues.
const Silence = 1500 * time.Millisecond

const (
	sayAgain  = 10 * time.Second // between two warnings of one cause, in two absences
	maxCauses = 16               // that are remembered
)

// Presence says whether a store can be used, judging by its calls. It is present until a call
// fails, and again when one succeeds. Any goroutine may record a call; mu guards the state.
type Presence struct {
	Kind     string       // such as "Redis"
	Place    string       // the servers' addresses, without a password
	Password string       // which no text may show
	Logger   *slog.Logger // names the place

	// CauseOf returns why a call has failed, in words that stay the same from call to call, and what to do about it.
	CauseOf func(error) (why, remedy string)

	mu      sync.Mutex           // guards what follows
	since   time.Time            // when the first call was made that failed; zero while the store is present
	trouble error                // of the latest call that failed, while the store is absent
	said    map[string]time.Time // by cause: when it was last logged
	told    bool                 // this absence was logged
}

// Note records the end of a call that began then; a nil error means that the store has answered.
func (p *Presence) Note(err error, began time.Time) {
	if errors.Is(err, context.Canceled) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if err == nil {
		if p.told {
			p.Logger.Warn("the store can be used again", "away", now.Sub(p.since).Round(time.Millisecond))
		}
		p.since, p.trouble, p.told = time.Time{}, nil, false
		return
	}
	if p.since.IsZero() {
		p.since = began
	}
	p.trouble = p.Wrap(err)
	why, remedy := p.CauseOf(err)
	if last, ok := p.said[why]; ok && (last.After(p.since) || now.Sub(last) < sayAgain) {
		return
	}
	if p.said == nil || len(p.said) >= maxCauses {
		p.said = make(map[string]time.Time)
	}
	p.said[why], p.told = now, true
	p.Logger.Warn("the store cannot be used", "cause", p.hide(why), "hint", remedy)
}

// Trouble returns why the store cannot be used, as far as the latest calls have shown, and nil if it answers.
func (p *Presence) Trouble() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trouble
}

// unusable is the error of a call to a store that cannot be used.
type unusable struct {
	text string
	err  error
}

func (u *unusable) Error() string { return u.text }
func (u *unusable) Unwrap() error { return u.err }

// Wrap returns the error of a call that the store has not answered. It says where the store is and what to do.
func (p *Presence) Wrap(err error) error {
	why, remedy := p.CauseOf(err)
	return &unusable{p.hide(fmt.Sprintf("store: the %s at %s cannot be used: %s: %s", p.Kind, p.Place, why, remedy)), err}
}

func (p *Presence) hide(text string) string {
	if p.Password == "" {
		return text
	}
	return strings.ReplaceAll(text, p.Password, "(password)")
}
