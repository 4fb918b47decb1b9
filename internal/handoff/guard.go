package handoff

// guard is a set of rules of the protocol. Tests switch single ones off, to
// see that the explorer then finds what the rule is there to prevent.
type guard uint64

const (
	guardFence           guard = 1 << iota // a closed table opens at a higher epoch only
	guardKnown                             // a move that was sent may have been made
	guardOlder                             // an answer with a lower epoch is an older one
	guardQuarantine                        // no claims for a TTL after the store lost data
	guardStoreQuarantine                   // no claims in the store's own quarantine
	guardReleased                          // a released owner's record may have come back from the past
	guardSilence                           // no claim before the owner was silent for a TTL
	guardStamp                             // what counts is the latest renewal, not the one that we knew of
	guardAbsent                            // who is dead is absent from a snapshot asked for when its time had come
	guardResidue                           // residue blocks its keys
	guardReturn                            // residue is cleared when the handler returns, not earlier
	guardStale                             // residue of ours that does not run any more is cleared again
	guardResend                            // a clear under way is not trusted to cover what was seen since
	guardInherited                         // residue of dead holders is removed, even if it blocks nothing
	guardReassert                          // residue is registered again when the store lost data
	guardEitherClock                       // a deadline passes on either clock
	guardClockBefore                       // a lease begins before its call was sent
	guardCancel                            // handlers are cancelled at their deadline
	guardSurrender                         // the session is lost at its deadline
	guardDrain                             // no release while a handler runs
	guardAlive                             // moves go to sessions that live
	guardAgreement                         // moves need equal views
	guardSettle                            // moves need a settled view
	guardForward                           // a parked partition that nobody takes comes back to us
	guardOwnSession                        // a snapshot without our own session means that it is gone
	guardFrozen                            // no release while a lock of ours is left that has not moved
	guardResumed                           // frozen locks go on only if nobody has served their partition since
	guardRenewable                         // locks that come by a claim are not renewed
	guardSuccessor                         // the store keeps locks for a TTL, for whoever comes after us
	guardOutcome                           // what was written with an unknown outcome is written again
	guardForgotten                         // locks are written again where the store has lost data
	guardHint                              // a hint tells nothing that a look has shown
	guardHintGeneration                    // a hint tells nothing of another generation
	guardHintNext                          // a hint tells all that is new only if it is of the next version
)

// on reports whether a rule holds.
func (m *Machine) on(g guard) bool { return m.off&g == 0 }
