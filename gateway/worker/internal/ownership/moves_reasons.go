package ownership

// direction says whether a partition comes or leaves.
type direction uint8

// The directions of moves.
const (
	moveTaken direction = iota // this worker took it over
	moveGiven                  // this worker gave it away
	moveLost                   // it was taken from this worker
	directions
)

// reason is why a partition moves.
type reason uint8

// The reasons of moves.
const (
	moveJoin       reason = iota // the taker came onto the ring
	moveRebalance                // the ring gave it to another one of its workers
	moveLeave                    // the giver leaves for good
	moveDrain                    // the giver, this worker, was told to leave the ring
	moveApp                      // the app of this worker, the giver, does not answer
	moveStore                    // this worker, the giver, uses another store than others
	moveWithdrawn                // the giver, another worker, is off the ring for one of the three
	moveDeath                    // the former owner has died
	moveRestart                  // and was started again
	moveSession                  // this worker has lost its session
	moveClaimed                  // another worker owns it without having been given it
	moveUnowned                  // nobody had it
	moveQuarantine               // and the store was so young that it was not to be claimed
	reasons
)

var (
	directionNames = [directions]string{"taken", "given", "lost"}
	reasonNames    = [reasons]string{"join", "rebalance", "leave", "drain", "app", "store", "withdrawn", "death", "restart", "session", "claimed", "unowned", "quarantine"}
	moveMessages   = [directions]string{"partitions taken over", "partitions given away", "partitions lost"}
	because        = [directions][reasons]string{
		moveTaken: {
			moveJoin: "this worker joined the ring", moveRebalance: "the ring changed", moveLeave: "it leaves",
			moveWithdrawn: "it is off the ring: it was drained, or its app does not answer", moveDeath: "it has ended", moveRestart: "it was started again",
			moveSession: "this worker had lost its session", moveUnowned: "nobody had them", moveQuarantine: "nobody had them, and the store was new or had lost data",
		},
		moveGiven: {
			moveJoin: "it joined the ring", moveRebalance: "the ring changed", moveLeave: "this worker leaves", moveDrain: "this worker is drained",
			moveApp: "this worker's app does not answer", moveStore: "this worker uses another store",
		},
		moveLost: {moveSession: "this worker lost its session", moveClaimed: "another worker owns them without having been given them: the store lost data"},
	}
)
