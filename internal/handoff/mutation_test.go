package handoff

import (
	"slices"
	"strings"
	"testing"
)

// mutation is a rule that does not hold, and the scope in which that shows.
type mutation struct {
	rule  string
	off   guard
	store storeGuard
	rates *[3]rate // of the workers' clocks, instead of the scope's
	scope string
	finds string // how the violation begins; "" if another rule covers this one
}

// mutations lists the rules of the protocol. Where two rules cover the same
// mischief, each is listed alone, and both together.
func mutations() []mutation {
	return []mutation{
		{rule: "a closed table opens at a higher epoch only", off: guardFence, scope: "store restarts", finds: "S"},
		{rule: "a move that was sent may have been made", off: guardKnown, scope: "lost writes, lost call, crash", finds: "S2"},
		{rule: "an answer with a lower epoch is an older one", off: guardOlder, scope: "flap, slow reads"},
		{rule: "own quarantine", off: guardQuarantine, scope: "lost writes, store's clock steps", finds: "S1"},
		{rule: "own quarantine, and the store's as we see it", off: guardQuarantine | guardStoreQuarantine, scope: "lost writes", finds: "S1"},
		{rule: "the store's quarantine as we see it", off: guardStoreQuarantine, scope: "lost writes and a leave"},
		{rule: "the store's quarantine as it sees it", store: storeQuarantine, scope: "lost writes and a leave"},
		{rule: "the store's quarantine, as either sees it", off: guardStoreQuarantine, store: storeQuarantine, scope: "lost writes and a leave", finds: "S"},
		{rule: "the quarantine of a new store that a newcomer trusts", off: guardStoreQuarantine, store: storeQuarantine, scope: "a new store, a worker joins that trusts its quarantine", finds: "S"},
		{rule: "released owners are not exempt from quarantine", off: guardReleased, store: storeQuarantine, scope: "lost writes and a leave", finds: "S"},
		{rule: "no claim before the owner was silent for a TTL", off: guardSilence, scope: "session expires early", finds: "S1"},
		{rule: "the latest renewal counts, though nobody has seen it", off: guardStamp, scope: "session expires early, unseen renewal", finds: "S1"},
		{rule: "who is dead is still absent when its time has come", off: guardAbsent, scope: "lost writes, slow reads", finds: "S1"},
		{rule: "who is dead is still absent, though reads fail", off: guardAbsent, scope: "lost writes, reads fail", finds: "S1"},
		{rule: "a clock is less than 5 percent slow", rates: &[3]rate{0: {9, 10}}, scope: "clock 4.8 percent slow, renewal lost", finds: "S1"},
		{rule: "the same while a worker joins", rates: &[3]rate{0: {13, 14}}, scope: "a worker joins, clock 4.8 percent slow, renewal lost", finds: "S1"},
		{rule: "a claimant's clock is less than 5 percent fast", rates: &[3]rate{1: {14, 13}}, scope: "claimant's clock 4.2 percent fast, session expires early, renewal lost", finds: "S1"},
		{rule: "a snapshot without our own session means that it is gone", off: guardOwnSession, scope: "session expires early"},
		{rule: "residue blocks its keys", off: guardResidue, scope: "move, calls lost or late", finds: "S1"},
		{rule: "residue is cleared when its handler returns", off: guardReturn, scope: "move, calls lost or late", finds: "S1"},
		{rule: "residue of ours that has ended is cleared again", off: guardStale, scope: "move, polled store", finds: "liveness"},
		{rule: "a clear covers only what was seen before it", off: guardResend, scope: "move, slow network", finds: "liveness"},
		{rule: "residue of the dead goes even if it blocks nothing", off: guardInherited, scope: "lost writes and a crash", finds: "liveness"},
		{rule: "residue is registered again", off: guardReassert, scope: "lost writes", finds: "S1"},
		{rule: "a deadline passes on either clock", off: guardEitherClock, scope: "suspended worker", finds: "S"},
		{rule: "a lease begins before its call is sent", off: guardClockBefore, scope: "false suspicion, renewal slow, then lost", finds: "S1"},
		{rule: "handlers are cancelled at their deadline", off: guardCancel, scope: "false suspicion, renewals lost", finds: "S1"},
		{rule: "the session is lost at its deadline", off: guardSurrender, scope: "session expires early, renewed at the last moment"},
		{rule: "no release while a handler runs", off: guardDrain, scope: "leave", finds: "S1"},
		{rule: "moves go to sessions that we saw alive", off: guardAlive, scope: "crash in a move"},
		{rule: "moves go to sessions that the store has", store: storeMoveLive, scope: "session expires early", finds: "M"},
		{rule: "moves need equal views", off: guardAgreement, scope: "crash in a move", finds: "M"},
		{rule: "moves need a settled view", off: guardSettle, scope: "crash in a move", finds: "M"},
		{rule: "a parked partition that nobody takes comes back", off: guardForward, scope: "leave and come back", finds: "liveness"},
		{rule: "no release while a lock is left that has not moved", off: guardFrozen, scope: "locks, leave at once", finds: "S1"},
		{rule: "the same for a lost session", off: guardFrozen, scope: "locks, session expires early", finds: "S1"},
		{rule: "frozen locks go on only if nobody has served since", off: guardResumed, scope: "locks, flap, late calls", finds: "S"},
		{rule: "locks that come by a claim are not renewed", off: guardRenewable, scope: "locks, crash after a move", finds: "S2"},
		{rule: "the store keeps locks for successors", off: guardSuccessor, scope: "locks, crash just after a move", finds: "S1"},
		{rule: "a lock is not renewed after its table has listed it", off: guardFreeze, scope: "locks, move, calls lost or late", finds: "S1"},
		{rule: "locks that come with a partition hold their keys", off: guardInstall, scope: "locks, move, calls lost or late", finds: "S1"},
		{rule: "a lock is promised for no longer than the owner's lease", off: guardPromise, scope: "locks, crash", finds: "S1"},
		{rule: "no restart releases an incarnation that has renewed a lock", off: guardPromised, scope: "locks, crash after a move, restart with proof", finds: "S1"},
		{rule: "what was written with an unknown outcome is written again", off: guardOutcome, scope: "long locks, crash, calls lost or late", finds: "S1"},
		{rule: "long locks are written again where the store has lost data", off: guardForgotten, scope: "long locks, everything lost, then a crash", finds: "S1"},
		{rule: "a long lock is promised when the store keeps it", off: guardWriteFirst, scope: "long locks, crash", finds: "S1"},
		{rule: "the key of a long lock is freed when the store has removed it", off: guardRemoveFirst, scope: "long locks, crash", finds: "S2"},
		{rule: "the lease is compared again after the mutex", off: guardRecheck, scope: "suspended worker", finds: "S1"},
		{rule: "the lease is compared before what cancels", off: guardConfirm, scope: "two lives in a move", finds: "S"},
		{rule: "ends of executions reach every life", off: guardEveryLife, scope: "two lives in a move", finds: "liveness"},
		{rule: "a table is closed and listed in one step", off: guardCloseList, scope: "move, calls lost or late", finds: "S1"},
		{rule: "a hint tells nothing that a look has shown", off: guardHint, scope: "flap, hint late, late clears", finds: "liveness"},
		{rule: "a hint tells nothing of another generation", off: guardHintGeneration, scope: "hint late, everything lost", finds: "liveness"},
		{rule: "a hint tells all only if it is of the next version", off: guardHintNext, scope: "two moves, hints late", finds: "liveness"},
		{rule: "store: clear compares holder and token", store: storeClearToken, scope: "flap, late clears", finds: "S1"},
		{rule: "store: re-asserted residue replaces no newer one", store: storeOlderToken, scope: "store restarts in a move, flap, late registration", finds: "S1"},
		{rule: "store: a claim needs the owner's session gone", store: storeClaimLive, scope: "crash in a move"},
		{rule: "store: a holding is refused if the record went on", store: storeRefuse, scope: "store restarts, flap, late registration", finds: "S1"},
		{rule: "store: moves compare the epoch", store: storeEpoch, scope: "flap", finds: "S"},
		{rule: "store: claims compare the record", store: storeCompare, scope: "first start, late claim", finds: "S"},
		{rule: "store: a move writes the locks with the record", store: storeLocks, scope: "locks, move, calls lost or late", finds: "S1"},
		{rule: "store: who has not served leaves the locks", store: storeServed, scope: "locks, flap twice, late move", finds: "S1"},
		{rule: "store: locks of a record that is passed on go on", store: storePass, scope: "locks, flap, late calls", finds: "M"},
		{rule: "store: who has opened a partition passes no older locks on", store: storeUnopened, scope: "locks, crash after a move", finds: "S"},
		{rule: "store: locks end with their generation", store: storeLocksEnd, scope: "locks, store restarts", finds: "liveness"},
		{rule: "store: a write of locks compares the record", store: storeWriteRecord, scope: "long locks, flap, late writes", finds: "liveness"},
		{rule: "store: a write of locks is made once", store: storeWriteNumber, scope: "long locks, two holders, calls lost or late", finds: "liveness"},
		{rule: "store: a released incarnation cannot register", store: storeTombstone, scope: "leave"},
		{rule: "store: calls compare the generation", store: storeGeneration, scope: "everything lost", finds: "S"},
		{rule: "store: a renewal brings no session back", store: storeRenewOnly, scope: "crash and a lost call"},
	}
}

// TestMutations switches off one rule at a time: the explorer must find what
// goes wrong without it. Under the race detector it searches a part.
func TestMutations(t *testing.T) {
	all := map[string]*scope{}
	for _, sc := range scopes() {
		all[sc.name] = sc
	}
	mus := mutations()
	mus = slices.DeleteFunc(mus, func(mu mutation) bool { return !strings.Contains(mu.rule, *mutate) })
	outs := make([]outcome, len(mus))
	inParallel(len(mus), func(i int) {
		sc := *all[mus[i].scope]
		sc.lossy = mus[i].finds != "M"
		if mus[i].rates != nil {
			sc.rates = *mus[i].rates
		}
		s := &search{sc: &sc, limit: 400000, off: mus[i].off, storeOff: mus[i].store}
		if mus[i].finds == "" {
			s.limit = 5000
		}
		if underRace {
			s.limit = min(s.limit, 1000)
		}
		outs[i] = s.run()
	})
	for i, mu := range mus {
		out := outs[i]
		switch {
		case out.err == nil && mu.finds != "" && underRace && !out.ended:
			t.Logf("%-52s not found so far: %v", mu.rule, out)
		case out.err == nil && mu.finds != "":
			t.Errorf("%-52s NOT MISSED: %v in %q", mu.rule, out, mu.scope)
		case out.err == nil:
			t.Logf("%-52s covered by other rules (%v in %q)", mu.rule, out, mu.scope)
		case mu.finds == "" || !strings.HasPrefix(out.err.Error(), mu.finds):
			t.Errorf("%-52s unexpected: %v\n%s", mu.rule, out.err, strings.Join(out.trace, "\n"))
		default:
			t.Logf("%-52s after %2d steps (%6d states): %v", mu.rule, out.steps, out.states, out.err)
		}
		if out.err != nil && *showTraces {
			t.Logf("\n%s", strings.Join(out.trace, "\n"))
		}
	}
}
