package worker

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/keyway-go/keyway/gateway"
)

// ErrAppDown means that the app behind a sidecar does not answer, so
// that the worker takes no place on the ring.
var ErrAppDown = errors.New("the app does not answer")

// PanicError is a panic of a function that ran for several callers, on a goroutine of its own: the
// callers' stacks do not show its origin. [Share] raises it again in each caller, except
// [http.ErrAbortHandler], which is raised unwrapped. It is a [gateway.ErrMayHaveRun].
type PanicError struct {
	Value any    // what the function panicked with
	Stack []byte // of the goroutine that panicked
}

func (p *PanicError) Error() string { return fmt.Sprintf("%v\n\n%s", p.Value, p.Stack) }

// Is makes the error an [gateway.ErrMayHaveRun].
func (p *PanicError) Is(target error) bool { return target == gateway.ErrMayHaveRun }

// Unwrap returns Value if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

func (p *PanicError) raise() {
	if p.Value == http.ErrAbortHandler {
		panic(http.ErrAbortHandler)
	}
	panic(p)
}
