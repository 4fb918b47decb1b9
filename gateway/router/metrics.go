package router

import (
	"cmp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/gateway/internal/spool"
	"github.com/keyway-go/keyway/internal/metrics"
)

// Values of the label route for requests without a named route.
const (
	onlyRoute  = "default" // of Config.Keys
	otherRoute = "other"   // requests that no route takes
)

func labelOf(name string) string { return strings.ToValidUTF8(cmp.Or(name, onlyRoute), "\uFFFD") }

// The router's families of metrics; docs/metrics.md describes them.
var (
	families metrics.Families

	requestsMetric       = families.Counter("keyway_router_requests_total", "Requests that were answered, by class of the status (499: the client did not wait) and by the way to the worker.", "route", "code", "way")
	durationMetric       = families.Histogram("keyway_router_request_duration_seconds", "Time from a request's head to the end of its answer, or to the change of protocols.", "route")
	underWayMetric       = families.Gauge("keyway_router_requests_in_flight", "Requests that are not answered yet, tunnels among them.")
	receivedMetric       = families.Counter("keyway_router_received_bytes_total", "Bytes of requests' bodies.", "route")
	sentMetric           = families.Counter("keyway_router_sent_bytes_total", "Bytes of answers' bodies.", "route")
	problemsMetric       = families.Counter("keyway_router_problems_total", "Answers that the router gave in place of a worker, by reason.", "kind")
	heldMetric           = families.Gauge("keyway_router_held_requests", "Requests that wait for a worker that takes them.")
	holdMetric           = families.Histogram("keyway_router_hold_duration_seconds", "How long requests waited for a worker that takes them; requests that did not wait do not count.")
	misroutesMetric      = families.Counter("keyway_router_misroutes_total", "Attempts at a worker that did not own the key.")
	hintsMetric          = families.Counter("keyway_router_hints_followed_total", "Attempts at an owner that another worker has named.")
	retriesMetric        = families.Counter("keyway_router_retries_total", "Attempts that provably did not start at their worker, so that the router could try again.")
	bodiesMetric         = families.Gauge("keyway_router_bodies_bytes", "Bytes of requests' bodies that are kept, in memory or in temporary files.", "place")
	connectionsMetric    = families.Gauge("keyway_router_connections", "Connections of clients.", "protocol")
	maxConnectionsMetric = families.Gauge("keyway_router_max_connections", "How many connections of clients each server takes.")
	acceptedMetric       = families.Counter("keyway_router_connections_accepted_total", "Connections of clients that were accepted.")
	surplusMetric        = families.Counter("keyway_router_connections_refused_total", "Connections that were closed at once, because their client had too many.")
	tunnelsMetric        = families.Gauge("keyway_router_tunnels", "Clients and apps that speak another protocol than HTTP through the router, such as WebSocket.")
	streamsMetric        = families.Gauge("keyway_router_link_requests", "Requests on the links to a worker.", "worker")
	linksMetric          = families.Gauge("keyway_router_links", "Links to a worker.", "worker")
)

var _ prometheus.Collector = (*Router)(nil)

// Describe implements [prometheus.Collector].
func (rt *Router) Describe(ch chan<- *prometheus.Desc) { families.Describe(ch) }

// Collect implements [prometheus.Collector].
func (rt *Router) Collect(ch chan<- prometheus.Metric) {
	answered := rt.collectTraffic(ch)
	for k := range problem.Kinds {
		if n := rt.counters.problems[k].Load(); n > 0 {
			metrics.Send(ch, problemsMetric, n, k.String())
		}
	}
	tried := rt.workers.Routes
	metrics.Send(ch, underWayMetric, max(rt.counters.requests.Load()-answered, 0))
	metrics.Send(ch, heldMetric, tried.Holding.Load())
	metrics.SendHistogram(ch, holdMetric, rt.holds.Distribution())
	metrics.Send(ch, misroutesMetric, tried.Refusals.Load())
	metrics.Send(ch, hintsMetric, tried.Hops.Load())
	metrics.Send(ch, retriesMetric, tried.Retries.Load())
	metrics.Send(ch, bodiesMetric, rt.budget.InUse(spool.Memory), "memory")
	metrics.Send(ch, bodiesMetric, rt.budget.InUse(spool.Disk), "files")
	rt.collectConnections(ch)
	rt.collectLinks(ch)
}

// collectTraffic collects what is counted for each route, and returns how many requests
// were answered.
func (rt *Router) collectTraffic(ch chan<- prometheus.Metric) (answered int64) {
	for key, value := range rt.traffic.Range {
		name, t := key.(string), value.(*traffic)
		for by := range send.Ways {
			for c := range send.Class(send.Classes) {
				n := int64(0)
				for i := range t.parts {
					n += t.parts[i].answered[by][c].Load()
				}
				if n > 0 {
					metrics.Send(ch, requestsMetric, n, name, c.String(), by.String())
				}
				answered += n
			}
		}
		var took metrics.Distribution
		var received, sent int64
		for i := range t.parts {
			p := &t.parts[i]
			took.Add(p.took.Distribution())
			received += p.received.Load()
			sent += p.sent.Load()
		}
		metrics.SendHistogram(ch, durationMetric, took, name)
		metrics.Send(ch, receivedMetric, received, name)
		metrics.Send(ch, sentMetric, sent, name)
	}
	return answered
}

func (rt *Router) collectConnections(ch chan<- prometheus.Metric) {
	var open, http2, tunnels int64
	for key := range rt.servers.Range {
		s := key.(*Server)
		open += s.limit.Open()
		s.mu.Lock()
		for c := range s.conns {
			switch c.(type) {
			case *h2Conn:
				http2++
			case *tunnel:
				tunnels++
			}
		}
		s.mu.Unlock()
	}
	metrics.Send(ch, connectionsMetric, max(open-http2, 0), "http/1.1")
	metrics.Send(ch, connectionsMetric, http2, "http/2")
	metrics.Send(ch, tunnelsMetric, tunnels)
	metrics.Send(ch, maxConnectionsMetric, rt.cfg.MaxConnections)
	metrics.Send(ch, acceptedMetric, rt.counters.accepted.Load())
	metrics.Send(ch, surplusMetric, rt.counters.surplus.Load())
}

// collectLinks collects what the links to workers carry, those of one name together.
func (rt *Router) collectLinks(ch chan<- prometheus.Metric) {
	requests, links := make(map[string]int64), make(map[string]int)
	for p := range rt.workers.All {
		name, n, open := p.Load()
		requests[name] += n
		links[name] += open
	}
	for name, n := range requests {
		metrics.Send(ch, streamsMetric, n, name)
		metrics.Send(ch, linksMetric, links[name], name)
	}
}
