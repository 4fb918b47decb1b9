package gossip

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/ring"
)

// The families of metrics of a membership; docs/metrics.md describes them.
var (
	families metrics.Families

	membersMetric     = families.Gauge("keyway_gossip_members", "Members that are seen, this one included.", "role", "state")
	refusedMetric     = families.Gauge("keyway_gossip_refused_members", "Members that are kept out of the view because they use another store.")
	disagreeingMetric = families.Gauge("keyway_gossip_disagreeing_members", "Active workers whose view of the active workers differs from that of this member.")
	viewsMetric       = families.Counter("keyway_gossip_view_changes_total", "Changes of the view of the cluster.")
	lostMetric        = families.Counter("keyway_gossip_members_lost_total", "Members that stopped answering without leaving.")
	healthMetric      = families.Gauge("keyway_gossip_health_score", "How badly this member keeps up with gossip: 0 is good; it rises while probes get no answer, for example because the process lacks CPU.")
)

var _ prometheus.Collector = (*Cluster)(nil)

// Describe implements [prometheus.Collector].
func (c *Cluster) Describe(ch chan<- *prometheus.Desc) { families.Describe(ch) }

// Collect implements [prometheus.Collector].
func (c *Cluster) Collect(ch chan<- prometheus.Metric) {
	view := c.View()
	type kind struct {
		role  ring.Role
		state ring.State
	}
	count := make(map[kind]int)
	for _, m := range view.Members {
		count[kind{m.Role, m.State}]++
	}
	for _, role := range []ring.Role{ring.RoleWorker, ring.RoleRouter} {
		for state := ring.StateJoining; state <= ring.StateLeaving; state++ {
			metrics.Send(ch, membersMetric, count[kind{role, state}], role.String(), state.String())
		}
	}
	disagreeing := 0
	for _, m := range view.Workers() {
		if m.View != view.Digest {
			disagreeing++
		}
	}
	metrics.Send(ch, disagreeingMetric, disagreeing)
	metrics.Send(ch, refusedMetric, len(view.Refused))
	metrics.Send(ch, viewsMetric, c.views.Load())
	metrics.Send(ch, lostMetric, c.lost.Load())
	metrics.Send(ch, healthMetric, c.list.GetHealthScore())
}
