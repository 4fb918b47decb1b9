package router

// way is what has carried a request that was answered.
type way uint8

const (
	byRouter   way = iota // nothing: the router has answered it
	byLink                // the link to a worker
	byHTTP1               // a connection of HTTP/1.1 to a worker
	byRelay               // the same in net/http's form: upgrades, and what only that form has
	byUpstream            // a connection to the route's server for requests without a key

	ways
)

func (w way) String() string {
	return [...]string{"router", "link", "http1", "relay", "upstream"}[w]
}
