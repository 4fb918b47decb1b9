package problem

import "net/http"

// Kind is one of the answers that a router or a worker gives in place of an app.
type Kind uint8

// entry is what a kind of answer says.
type entry struct {
	status int
	name   string // in the type of application/problem+json
	title  string
}

// retry reports whether the request may be answered later; the default of Retry-After is 1 s.
func (e *entry) retry() bool {
	return e.status == http.StatusTooManyRequests || e.status == http.StatusServiceUnavailable || e.status == http.StatusLocked
}

// Kinds bounds how many kinds there are.
const Kinds Kind = 64

// table has all answers of Keyway's own; known is how many.
var (
	table [Kinds]entry
	known Kind
)

func kind(status int, name, title string) Kind {
	table[known] = entry{status, name, title}
	known++
	return known - 1
}

// The kinds of answers.
var (
	NoKey         = kind(http.StatusBadRequest, "no-key", "the request has no key")
	BadKey        = kind(http.StatusBadRequest, "bad-key", "the request's key is invalid")
	NoRoute       = kind(http.StatusNotFound, "no-route", "no route takes the request")
	RouteRate     = kind(http.StatusTooManyRequests, "route-rate", "too many requests of this kind lately, try again")
	NoUpstream    = kind(http.StatusServiceUnavailable, "no-upstream", "the server for this request cannot be reached, try again")
	BadMethod     = kind(http.StatusBadRequest, "bad-method", "the request's method is not valid in HTTP")
	BadTarget     = kind(http.StatusBadRequest, "bad-target", "the request's target has no path, an invalid host, or a #, which must be sent as %23")
	Connect       = kind(http.StatusNotImplemented, "connect", "CONNECT is not supported")
	Trace         = kind(http.StatusMethodNotAllowed, "trace", "TRACE is not allowed")
	HeadTooLarge  = kind(http.StatusRequestHeaderFieldsTooLarge, "head-too-large", "the request's headers are too large")
	BodyTooSlow   = kind(http.StatusRequestTimeout, "body-too-slow", "the request's body did not arrive in time")
	BodyBroken    = kind(http.StatusBadRequest, "body-broken", "the request's body did not arrive")
	BodyTooLarge  = kind(http.StatusRequestEntityTooLarge, "body-too-large", "the request's body is too large")
	GivenUp       = kind(http.StatusTooManyRequests, "given-up", "too many requests that this client cancelled still run")
	TooManyWait   = kind(http.StatusTooManyRequests, "too-many-wait", "too many requests wait")
	RateOfKey     = kind(http.StatusTooManyRequests, "rate-of-key", "the key has reached its rate of requests, try again")
	OtherVersion  = kind(http.StatusServiceUnavailable, "other-version", "the worker's version does not know a setting of the request's route, try again")
	NoOwner       = kind(http.StatusServiceUnavailable, "no-owner", "no worker takes requests for the key at the moment, try again")
	StandsAside   = kind(http.StatusServiceUnavailable, "stands-aside", "this router takes no requests at the moment, try another one")
	HoldFull      = kind(http.StatusServiceUnavailable, "hold-full", "too many requests wait for their workers, try again")
	BodiesFull    = kind(http.StatusServiceUnavailable, "bodies-full", "too many requests with bodies at once, try again")
	WorkerFull    = kind(http.StatusServiceUnavailable, "worker-full", "the worker is full, try again")
	OnwardFull    = kind(http.StatusServiceUnavailable, "onward-full", "too many connections to workers and apps at once, try again")
	MayHaveRun    = kind(http.StatusBadGateway, "may-have-run", "the request may have started, but there is no answer")
	OtherOwner    = kind(http.StatusMisdirectedRequest, "other-owner", "the key belongs to another worker; send the request there, or to a router")
	Unowned       = kind(http.StatusMisdirectedRequest, "unowned", "no worker serves the key yet; send the request to a router, or try again later")
	Unavailable   = kind(http.StatusServiceUnavailable, "unavailable", "the worker takes no requests for the key at the moment, try again")
	Quarantined   = kind(http.StatusServiceUnavailable, "quarantined", "workers have crashed while requests for this key ran, so it takes none for now")
	Nested        = kind(http.StatusLoopDetected, "nested", "the request would wait for a key that its own chain of calls holds")
	KeyHeld       = kind(http.StatusConflict, "key-held", "the key is held")
	KeyWaited     = kind(http.StatusServiceUnavailable, "key-waited", "the key was not free in time, try again")
	Deadlock      = kind(http.StatusServiceUnavailable, "deadlock", "the request would wait for a key whose holder waits for it, try again")
	NoAnswer      = kind(http.StatusBadGateway, "no-answer", "the app did not answer")
	TimedOut      = kind(http.StatusGatewayTimeout, "timed-out", "the request was not answered in time: it may have run")
	AppFull       = kind(http.StatusServiceUnavailable, "app-full", "the app has reached its limit of requests, try again")
	OwnershipLost = kind(http.StatusBadGateway, "ownership-lost", "the ownership of the key was lost: the request may have run")
	Switched      = kind(http.StatusBadGateway, "switched", "the app changed protocols unasked")
	BatchPath     = kind(http.StatusNotFound, "batch-path", "the path is for batches of the sidecar")
	BatchFailed   = kind(http.StatusInternalServerError, "batch-failed", "the batch with the request failed: the request may have run")
	BatchLost     = kind(http.StatusBadGateway, "batch-lost", "the batch with the request was not answered as it should be: the request may have run")
	BadItem       = kind(http.StatusBadRequest, "bad-item", "the request cannot be handled")
	ItemTooLarge  = kind(http.StatusRequestEntityTooLarge, "item-too-large", "the request's body is too large")
	NotDirect     = kind(http.StatusForbidden, "not-direct", "this worker takes requests from routers only: send the request to a router, or start the worker with --direct")
	BadLock       = kind(http.StatusBadRequest, "bad-lock", "the request for a lock is invalid")
	LockHeld      = kind(http.StatusLocked, "lock-held", "another caller holds the key")
	LockGone      = kind(http.StatusGone, "lock-gone", "this lease no longer locks the key: it was unlocked, or others may have locked the key since; a new lock needs a new lease or Idempotency-Key")
	LockOther     = kind(http.StatusUnprocessableEntity, "lock-other", "another request has used this Idempotency-Key: choose a new one for each lock")
	OtherMethod   = kind(http.StatusMethodNotAllowed, "other-method", "the resource does not support this method")
	NotFromHere   = kind(http.StatusForbidden, "not-from-here", "without --locks-token only this machine may send requests here")
	NoToken       = kind(http.StatusUnauthorized, "no-token", "the request needs the header Authorization: Bearer with the token of --locks-token")
	OtherSite     = kind(http.StatusForbidden, "other-site", "a page of another site has sent the request")
	Leaving       = kind(http.StatusServiceUnavailable, "leaving", "this router is shutting down, try another one")
)
