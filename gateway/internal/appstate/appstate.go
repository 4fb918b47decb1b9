// Package appstate is what a worker and the sidecar of an app in another process tell each other.
package appstate

import "errors"

// State says whether an app answers. Its errors wrap worker.ErrAppDown.
type State struct {
	Down  error // nil while the app answers
	Delay error // why the worker does not join others on the ring yet; nil if it may
}

// ErrStreamEnds is the cause of a stream's context when its partition is given away.
var ErrStreamEnds = errors.New("worker: the key moves to another worker, or this worker leaves: the client must connect again")
