package handoff

import (
	"strings"
	"testing"
)

// mutation is a rule that does not hold, and the scope in which that shows.
type mutation struct {
	rule  string
	off   guard
	store storeGuard
	scope string
}

func mutations() []mutation {
	return []mutation{
		{rule: "a closed table opens at a higher epoch only", off: guardFence},
		{rule: "a move that was sent may have been made", off: guardKnown},
		{rule: "an answer with a lower epoch is an older one", off: guardOlder},
		{rule: "no claims for a TTL after a loss of data", off: guardQuarantine},
		{rule: "machine waits for the store's quarantine", off: guardStoreQuarantine},
		{rule: "store refuses claims in its quarantine", store: storeQuarantine},
		{rule: "both of these", off: guardStoreQuarantine, store: storeQuarantine},
		{rule: "released owners: no exemption from quarantine", off: guardReleased},
		{rule: "released owners: ... in store too", off: guardReleased, store: storeQuarantine},
		{rule: "no claim before the owner was silent for a TTL", off: guardSilence},
		{rule: "a session that vanished early was perhaps renewed", off: guardLook},
		{rule: "residue blocks its keys", off: guardResidue},
		{rule: "residue is cleared when the handler returns", off: guardReturn},
		{rule: "residue of ours that ended is cleared again", off: guardStale},
		{rule: "a clear under way covers only what was seen before", off: guardResend},
		{rule: "residue of the dead is removed even if it blocks nothing", off: guardGhosts},
		{rule: "residue is registered again", off: guardReassert},
		{rule: "a deadline passes on either clock", off: guardEitherClock},
		{rule: "a lease begins before its call was sent", off: guardClockBefore},
		{rule: "handlers are cancelled", off: guardCancel},
		{rule: "the session is lost at its deadline", off: guardSurrender},
		{rule: "no release while a handler runs", off: guardDrain},
		{rule: "machine: moves go to sessions that live", off: guardAlive},
		{rule: "store: moves go to sessions that live", store: storeMoveLive},
		{rule: "moves: both", off: guardAlive, store: storeMoveLive},
		{rule: "moves need equal views", off: guardAgreement},
		{rule: "moves need a settled view", off: guardSettle},
		{rule: "a parked partition comes back", off: guardForward},
		{rule: "the lease is compared again after the mutex", off: guardRecheck},
		{rule: "closed and listed in one step", off: guardCloseList},
		{rule: "store: clear compares the token", store: storeClearToken},
		{rule: "store: older residue never replaces newer", store: storeOlderToken},
		{rule: "store: a claim needs the owner's session gone", store: storeClaimLive},
		{rule: "store: a holding is refused if the record went on", store: storeRefuse},
		{rule: "store: changes compare the epoch", store: storeEpoch},
		{rule: "store: claims compare the record", store: storeCompare},
		{rule: "store: a released incarnation cannot register", store: storeTombstone},
		{rule: "store: calls compare the generation", store: storeGeneration},
		{rule: "store: a renewal brings no session back", store: storeRenewOnly},
	}
}

func TestMutations(t *testing.T) {
	for _, mu := range mutations() {
		best := ""
		var trace []string
		steps := 1 << 30
		for _, sc := range scopes() {
			s := &search{sc: sc, ttl: ttl, limit: 40000, off: mu.off, storeOff: mu.store}
			out := s.run()
			if out.err != nil && out.steps < steps {
				steps = out.steps
				best = sc.name + ": " + out.err.Error()
				trace = out.trace
			}
		}
		t.Logf("%-60s %5d %s", mu.rule, steps, best)
		if best == "" {
			t.Logf("   NOT FOUND")
		}
		_ = trace
		_ = strings.Join
	}
}
