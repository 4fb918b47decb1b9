package gossip

import (
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/keyway-go/keyway/internal/wake"
)

// How a member passes on what has changed.
const (
	gossipNodes = 6                     // members that are told in a round
	stirRounds  = 6                     // after the latest change, each after twice the pause of the one before
	stirGather  = 10 * time.Millisecond // before the first: changes seldom come alone
	stirEach    = 5 * time.Millisecond  // least pause, for each member
	newsBytes   = 1200                  // in a packet
)

// stir begins rounds anew, for a change of the list of members or for news. It may be called with memberlist's locks
// held.
func (c *Cluster) stir(listed bool) {
	if listed {
		c.listed.Store(true)
	}
	wake.Up(c.stirred)
}

// stirAll tells a few members in each round after a change. memberlist's own rounds come too late for that.
func (c *Cluster) stirAll() {
	for {
		select {
		case <-c.stirred:
		case <-c.ctx.Done():
			return
		}
		listed, least := 0, time.Duration(0)
		began := time.Now() // the latest round
		due := began.Add(stirGather)
		for round := 0; round < stirRounds; {
			select {
			case <-time.After(time.Until(due)):
			case <-c.stirred:
				round = 0
				if soon := time.Now().Add(max(stirGather, least-time.Since(began))); soon.Before(due) {
					due = soon
				}
				continue
			case <-c.ctx.Done():
				return
			}
			if c.listed.Swap(false) {
				listed = stirRounds
			}
			others := c.news.others()
			c.tell(others, listed > 0)
			listed--
			round++
			began, least = time.Now(), time.Duration(len(others))*stirEach
			due = began.Add(max(stirGather<<round, least))
		}
	}
}

// tell sends news to gossipNodes of others. If ping, it pings them instead: memberlist puts all that it has to
// spread into pings and their answers, news included. Nobody waits for the answers.
func (c *Cluster) tell(others []memberlist.Address, ping bool) {
	for _, other := range others[:min(len(others), gossipNodes)] {
		if ping {
			go c.ping(other)
			continue
		}
		news := c.news.batch(newsBytes)
		if len(news) == 0 {
			return
		}
		_ = c.list.SendToAddress(other, news)
	}
}
