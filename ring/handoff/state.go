package handoff

import "fmt"

// Phase says where an incarnation is in its life.
type Phase uint8

// The phases of an incarnation.
const (
	PhaseStarting    Phase = iota // not yet registered
	PhaseLive                     // registered in the store's current generation
	PhaseReasserting              // the store lost data: serving on under the old lease, registering again
	PhaseLost                     // the session is gone: owns nothing, handlers end
	PhaseReleasing                // nothing runs any more: giving the session up
	PhaseReleased                 // the end
	phases
)

// State says what an incarnation has to do with a partition.
type State uint8

// The states of a partition.
const (
	StateRemote   State = iota // nothing: not ours, as far as we know
	StateClaiming              // a claim of it is on its way
	StateServing               // ours: its table is open
	StateClosing               // its table is being closed
	StateParked                // the record may be ours, but its table is closed and never opens at that epoch again
	StateMoving                // a move to another incarnation is on its way
	states
)

// phaseNext and stateNext are the allowed transitions. setPhase and setState,
// which alone write the states, check them.
var (
	phaseNext = [phases][phases]bool{
		PhaseStarting:    {PhaseLive: true, PhaseLost: true, PhaseReleasing: true},
		PhaseLive:        {PhaseReasserting: true, PhaseLost: true, PhaseReleasing: true},
		PhaseReasserting: {PhaseLive: true, PhaseLost: true, PhaseReleasing: true},
		PhaseLost:        {PhaseReleasing: true},
		PhaseReleasing:   {PhaseReleased: true},
	}
	stateNext = [states][states]bool{
		StateRemote:   {StateClaiming: true, StateServing: true, StateParked: true},
		StateClaiming: {StateServing: true, StateRemote: true, StateParked: true},
		StateServing:  {StateClosing: true},
		StateClosing:  {StateParked: true, StateRemote: true},
		StateParked:   {StateMoving: true, StateClaiming: true, StateServing: true, StateRemote: true},
		StateMoving:   {StateParked: true, StateServing: true, StateRemote: true},
	}
)

var (
	phaseNames = [phases]string{"starting", "live", "reasserting", "lost", "releasing", "released"}
	stateNames = [states]string{"remote", "claiming", "serving", "closing", "parked", "moving"}
)

func (p Phase) String() string {
	if p < phases {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

func (s State) String() string {
	if s < states {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

func (o Op) String() string {
	switch o {
	case OpClaim:
		return "claim"
	case OpMove:
		return "move"
	case OpAdvance:
		return "advance"
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}
