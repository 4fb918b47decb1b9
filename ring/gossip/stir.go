package gossip

import (
	"math/rand/v2"
	"net"
	"time"

	"github.com/hashicorp/memberlist"
)

// How a member passes on what has changed.
const (
	gossipNodes = 6                      // members that are told in a round
	stirRounds  = 6                      // after the latest change
	stirGather  = 10 * time.Millisecond  // before the first: changes seldom come alone
	stirLeast   = 100 * time.Millisecond // between two rounds
	stirEach    = 5 * time.Millisecond   // for each member, if that is longer
	newsBytes   = 1200                   // in a packet
)

// stir begins rounds anew, for a change of the list of members or for news. It may be called with memberlist's locks
// held.
func (c *Cluster) stir(listed bool) {
	if listed {
		c.listed.Store(true)
	}
	select {
	case c.stirred <- struct{}{}:
	default:
	}
}

// stirAll tells a few members in each round after a change. memberlist's own rounds come too late for that.
func (c *Cluster) stirAll() {
	for {
		select {
		case <-c.stirred:
		case <-c.ctx.Done():
			return
		}
		pause, listed := stirGather, 0
		for round := 0; round < stirRounds; round++ {
			select {
			case <-time.After(pause):
			case <-c.ctx.Done():
				return
			}
			if c.listed.Swap(false) {
				listed = stirRounds
			}
			members := c.list.Members()
			c.tell(members, listed > 0)
			listed--
			pause = max(stirLeast, time.Duration(len(members))*stirEach)
			select {
			case <-c.stirred:
				round = 0
			default:
			}
		}
	}
}

// tell sends news to gossipNodes of members. If ping, it pings them instead: memberlist puts all that it has to
// spread into pings and their answers, news included. Nobody waits for the answers.
func (c *Cluster) tell(members []*memberlist.Node, ping bool) {
	rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	left := gossipNodes
	for _, m := range members {
		switch {
		case left == 0:
			return
		case m.Name == c.node:
			continue
		case ping:
			go c.list.Ping(m.Name, &net.UDPAddr{IP: m.Addr, Port: int(m.Port)})
		default:
			news := c.news.batch(newsBytes)
			if len(news) == 0 {
				return
			}
			_ = c.list.SendBestEffort(m, news)
		}
		left--
	}
}
