package ring

import "fmt"

// Role is a member's task in the cluster.
type Role uint8

// The roles of members.
const (
	RoleWorker Role = iota + 1 // owns partitions and runs requests
	RoleRouter                 // sends requests to their owners
)

// State is a stage of a member's life. Only workers in StateActive are on the
// ring.
type State uint8

// The states of members, in their order.
const (
	StateJoining State = iota + 1 // present, not yet ready to own partitions
	StateActive                   // on the ring
	StateLeaving                  // off the ring, handing its partitions over
)

// Member is one process of the cluster as its peers see it. It is a plain,
// comparable value.
type Member struct {
	Name        string // unique in the cluster; places the member on the ring
	Incarnation string // random id of this life of a worker; ownership belongs to it
	Role        Role
	State       State
	Addr        string  // host:port that takes requests
	Link        bool    // Addr takes the multiplexed link too, not only HTTP
	GRPC        bool    // its app takes calls of gRPC, whose bodies reach it as they come
	TLS         bool    // it speaks TLS with members, see Settings.PeerTLS
	Gossip      string  // host:port of its gossip listener
	Store       string  // URL of the store that it offers to others; empty for none
	StoreID     StoreID // identity of the store that it uses; 0 when not yet known
	View        uint64  // digest of the View that it sees; 0 when not yet known
	Epoch       int64   // a worker's: highest epoch of any partition's ownership that it knows of; 0 for none
}

// View is the cluster as one member sees it at one moment. It is immutable.
// NewView makes one.
type View struct {
	Members []Member // every reachable member, self included, sorted by Name
	Table   *Table   // over the names of the active workers; never nil
	Digest  uint64   // of the ring's configuration, the active workers' names and incarnations, and the exceptions

	// Refused are the members that use another store and are therefore not in Members, in the same
	// order. See Agreeing.
	Refused []Member

	// Placements say which partitions of Table do not go by the ring, in package placement's form.
	Placements string

	// KeyConflict says that another router takes keys from other sources than this one, and did so
	// first. This router must send no requests. nil for none. It wraps ErrSettings.
	KeyConflict error

	workers      []Member       // see Workers
	owners       []int          // index of Table.members -> index of Members; -1 for none
	incarnations map[string]int // incarnation -> index of Members
}

func (r Role) String() string { return nameOf("role", int(r), "", "worker", "router") }

func (s State) String() string { return nameOf("state", int(s), "", "joining", "active", "leaving") }

// nameOf returns the name of a value; values without a name are of another version, or wrong.
func nameOf(kind string, value int, names ...string) string {
	if value < len(names) && names[value] != "" {
		return names[value]
	}
	return fmt.Sprintf("%s(%d)", kind, value)
}
