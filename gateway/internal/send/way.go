package send

// Way is what has carried a request that was answered.
type Way uint8

const (
	ByRouter   Way = iota // nothing: the router has answered it
	ByLink                // the link to a worker
	ByHTTP1               // a connection of HTTP/1.1 to a worker
	ByRelay               // the same in net/http's form: upgrades, and what only that form has
	ByUpstream            // a connection to the route's server for requests without a key

	Ways
)

func (w Way) String() string {
	return [...]string{"router", "link", "http1", "relay", "upstream"}[w]
}
