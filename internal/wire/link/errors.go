package link

import (
	"errors"
	"fmt"
)

// Errors of the link. A request may be sent again only if errors.Is finds ErrNotStarted in its
// error.
var (
	// ErrNotStarted means that the request provably did not reach a handler, or
	// the handler refused it before it began (RefusedError).
	ErrNotStarted = errors.New("link: the request did not start")

	// ErrWaited means that the request waited at the worker, for its turn, when
	// the connection was lost. It is an ErrNotStarted.
	ErrWaited = fmt.Errorf("%w: it waited at the worker when the connection was lost", ErrNotStarted)

	// ErrLost means that the connection broke after the request had been handed
	// to the kernel; whether it ran is not known.
	ErrLost = errors.New("link: connection lost, the request may have run")

	// ErrClosed means that this end was closed, or the stream is over.
	ErrClosed = errors.New("link: closed")

	// ErrDraining means that the peer takes no new requests on the connection.
	ErrDraining = errors.New("link: peer is draining")

	// ErrStalled means that the peer has been silent for 4 s, or, for a request that was already
	// sent, for 30 s.
	ErrStalled = errors.New("link: peer does not answer")

	// ErrTooManyStreams means that the connection carries as many requests as the
	// peer takes at once, or more bytes wait for the kernel than it may hold back.
	ErrTooManyStreams = errors.New("link: too many requests at once")

	// ErrNotKept means that the request did not start, and there was no room in
	// Request.Memory for all of its body. A part of it may have been sent: it
	// cannot be sent again.
	ErrNotKept = errors.New("link: a part of the body was not kept")

	// ErrHeaderTooLarge means that the request's head, or its trailers, are
	// longer than the peer takes.
	ErrHeaderTooLarge = errors.New("link: the request's header is too large")

	// ErrAnswerHeaderTooLarge means that the answer's head, or its trailers, are
	// longer than the client takes. The request has run.
	ErrAnswerHeaderTooLarge = errors.New("link: the answer's header is too large")

	// ErrNoLink means that the peer answered with something else than the link,
	// most likely plain HTTP/1.1.
	ErrNoLink = errors.New("link: peer does not speak the link")

	// ErrProtocol means that the peer broke the protocol.
	ErrProtocol = errors.New("link: protocol violated")

	// ErrContentLength means that a body is longer or shorter than was declared.
	ErrContentLength = errors.New("link: body does not match its length")
)

// notStarted marks err as that of a request that provably did not start.
func notStarted(err error) error {
	if errors.Is(err, ErrNotStarted) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotStarted, err)
}

// Reason says why a worker refused a request.
type Reason uint8

// The reasons of a refusal.
const (
	NotOwner    Reason = iota + 1 // another worker owns the key
	Unavailable                   // the worker may not serve now: its lease runs out, or it shuts down
	Busy                          // too many requests wait already
)

func (r Reason) String() string {
	return nameOf("reason", uint8(r), []string{NotOwner: "not-owner", Unavailable: "unavailable", Busy: "busy"})
}

// nameOf returns the name of a number of a kind, or the number if it has none.
func nameOf(kind string, n uint8, names []string) string {
	if int(n) < len(names) && names[n] != "" {
		return names[n]
	}
	return fmt.Sprintf("%s(%d)", kind, n)
}

// RefusedError is a worker's own refusal of a request, before any handler of
// the application saw it. It is an ErrNotStarted.
type RefusedError struct {
	Reason Reason
	Owner  string // NotOwner: incarnation of the owner; empty when not known
	Addr   string // NotOwner: where the owner takes requests; empty when not known
	Epoch  int64  // NotOwner: epoch of the owner's record; 0 when not known
}

func (e *RefusedError) Error() string {
	if e.Reason == NotOwner && e.Owner != "" {
		return fmt.Sprintf("link: refused: %v, owner %s at %s, epoch %d", e.Reason, e.Owner, e.Addr, e.Epoch)
	}
	return fmt.Sprintf("link: refused: %v", e.Reason)
}

// Is makes a refusal an ErrNotStarted.
func (e *RefusedError) Is(target error) bool { return target == ErrNotStarted }

// Code says why a peer gave a stream up.
type Code uint8

// The codes of streams that were given up.
const (
	CodeCancel    Code = iota + 1 // the client no longer wants the answer
	CodeAborted                   // the handler panicked, or ended short of the length it declared
	CodeMalformed                 // a head or trailers are malformed, or come out of order
)

func (c Code) String() string {
	return nameOf("code", uint8(c), []string{CodeCancel: "cancelled", CodeAborted: "aborted", CodeMalformed: "malformed"})
}

// ResetError is how a stream ends that the peer gave up in the middle.
type ResetError struct {
	Code Code
}

func (e *ResetError) Error() string { return fmt.Sprintf("link: reset by peer: %v", e.Code) }

// MismatchError is how a connection ends whose two ends are not of one
// cluster, or not configured alike. Requests on it did not start.
type MismatchError struct {
	What   string // "version", "gossip key", "cluster", "configuration digest" or "store"
	Local  string
	Remote string
	Remedy string // what to do
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("link: %s differs: %s here, %s at the peer: %s", e.What, e.Local, e.Remote, e.Remedy)
}
