package handoff

// guard is a set of rules of the protocol. Tests switch single ones off, to
// see that the explorer then finds what the rule is there to prevent.
type guard uint32

const (
	guardFence           guard = 1 << iota // a closed table opens at a higher epoch only
	guardQuarantine                        // no claims for a TTL after the store lost data
	guardStoreQuarantine                   // no claims in the store's own quarantine
	guardSilence                           // no claim before the owner was silent for a TTL
	guardLook                              // a session that vanished early was perhaps renewed
	guardResidue                           // residue blocks its keys
	guardEitherClock                       // a deadline passes on either clock
	guardClockBefore                       // a lease begins before its call was sent
	guardCancel                            // handlers are cancelled at their deadline
	guardSurrender                         // the session is lost at its deadline
	guardDrain                             // no release while a handler runs
	guardAlive                             // moves go to sessions that live
	guardAgreement                         // moves need equal views
	guardSettle                            // moves need a settled view
	guardRecheck                           // the request path compares the lease again after winning the mutex
)

// on reports whether a rule holds.
func (m *Machine) on(g guard) bool { return m.off&g == 0 }
