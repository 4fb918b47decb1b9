package worker

import (
	"cmp"
	"context"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/policy"
	"github.com/keyway-go/keyway/localmutex"
)

// maxWait returns how long the caller may wait for its key.
func (k *keys) maxWait(how asking) time.Duration {
	if how.policy == nil {
		return cmp.Or(how.maxWait, k.cfg.MaxWait)
	}
	return cmp.Or(how.policy.MaxWait, k.cfg.MaxWait)
}

// wait returns how the caller waits in the queue of its key.
func (how *asking) wait() localmutex.Wait {
	wait := localmutex.Wait{Client: how.client, MaxWait: how.maxWait, Shared: how.shared}
	if how.policy != nil {
		wait.PerKey, wait.MaxWait = how.policy.QueuePerKey, how.policy.MaxWait
	}
	return wait
}

// limited reports whether the caller's route has a rate.
func (how *asking) limited() bool { return how.policy != nil && how.policy.Rate != policy.Rate{} }

// pay takes a token of the caller's route for key, if that has a rate. It waits for
// the partition to arrive, as a request does: only the key's owner knows how many are
// left. The token can be given back in the term that it returns, unless the error says
// that there is none, or that the key is another worker's.
func (k *keys) pay(ctx context.Context, p *partition, key string, how asking) (term uint64, err error) {
	if !p.open.Load() {
		if how.share != nil && !how.share.BeginWait() {
			return 0, errLinkFull
		}
		err := p.awaitOwnership(ctx, key, how, time.Now().Add(k.maxWait(how)))
		if how.share != nil {
			how.share.EndWait()
		}
		if err != nil {
			return 0, err
		}
	}
	term = p.term.Load()
	return term, k.rates.take(how.policy, key, term, k.now())
}
