package handoff

// phase says where an incarnation is in its life.
type phase uint8

// The phases of an incarnation.
const (
	phaseStarting    phase = iota // not yet registered
	phaseLive                     // registered in the store's current generation
	phaseReasserting              // the store lost data: serving on under the old lease, registering again
	phaseLost                     // the session is gone: owns nothing, handlers end
	phaseReleasing                // nothing runs any more: giving the session up
	phaseReleased                 // the end
	phases
)

// state says what an incarnation has to do with a partition.
type state uint8

// The states of a partition.
const (
	stateRemote   state = iota // nothing: not ours, as far as we know
	stateClaiming              // a claim of it is on its way
	stateServing               // ours: its table is open
	stateClosing               // its table is being closed
	stateParked                // the record may be ours, but its table is closed and never opens at that epoch again
	stateMoving                // a move to another incarnation is on its way
	states
)

// phaseNext and stateNext are the allowed transitions. setPhase and setState,
// which alone write the states, check them.
var (
	phaseNext = [phases][phases]bool{
		phaseStarting:    {phaseLive: true, phaseLost: true, phaseReleasing: true},
		phaseLive:        {phaseReasserting: true, phaseLost: true, phaseReleasing: true},
		phaseReasserting: {phaseLive: true, phaseLost: true, phaseReleasing: true},
		phaseLost:        {phaseReleasing: true},
		phaseReleasing:   {phaseReleased: true},
	}
	stateNext = [states][states]bool{
		stateRemote:   {stateClaiming: true, stateServing: true, stateParked: true},
		stateClaiming: {stateServing: true, stateRemote: true, stateParked: true},
		stateServing:  {stateClosing: true},
		stateClosing:  {stateParked: true, stateRemote: true},
		stateParked:   {stateMoving: true, stateClaiming: true, stateServing: true, stateRemote: true},
		stateMoving:   {stateParked: true, stateServing: true, stateRemote: true},
	}
)

var (
	phaseNames = [phases]string{"starting", "live", "reasserting", "lost", "releasing", "released"}
	stateNames = [states]string{"remote", "claiming", "serving", "closing", "parked", "moving"}
)

func (p phase) String() string { return phaseNames[p] }
func (s state) String() string { return stateNames[s] }
