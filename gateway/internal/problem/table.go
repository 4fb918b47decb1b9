package problem

import "net/http"

// Kind is one of the answers that a router or a worker gives in place of an app.
type Kind uint8

// The kinds of answers.
const (
	NoKey         Kind = iota // the request has no key
	BadKey                    // it has one that cannot be
	NoRoute                   // no route takes it
	RouteRate                 // its route has had too many requests lately
	NoUpstream                // the server of its route's requests without a key cannot be reached
	BadMethod                 // its method is none of HTTP
	BadTarget                 // its target has no path, a host that is none, or a #
	Connect                   // it is a CONNECT
	Trace                     // it is a TRACE
	HeadTooLarge              // its head or trailers are larger than a worker takes
	BodyTooSlow               // the client sent its body too slowly
	BodyBroken                // the client broke its body off
	BodyTooLarge              // the body is longer than it may be
	GivenUp                   // the client has given up too many requests that still run
	TooManyWait               // too many requests wait at the worker
	RateOfKey                 // the key has had as many requests as its route's rate allows
	OtherVersion              // the router and the worker are of different versions
	NoOwner                   // nobody who owns the partition could be reached
	StandsAside               // the router's routes differ from another one's
	HoldFull                  // too many requests wait for owners
	BodiesFull                // too many requests with bodies at once
	WorkerFull                // the links to the worker are full
	OnwardFull                // there are too many tunnels and requests without a key
	MayHaveRun                // the request was sent, and there is no answer
	OtherOwner                // the key is another worker's
	Unowned                   // nobody serves the key yet
	Unavailable               // the worker takes no requests now
	Quarantined               // workers have died while executions of the key ran
	Nested                    // the chain of calls that the request belongs to holds its key
	KeyHeld                   // the key is held, and the request was not to wait
	KeyWaited                 // the key was not free in time
	Deadlock                  // requests would wait for each other
	NoAnswer                  // the app did not answer
	TimedOut                  // the app did not answer in time
	AppFull                   // the app has as many requests as it may have
	OwnershipLost             // the worker stopped being the key's owner
	Switched                  // the app changed protocols unasked
	BatchPath                 // the path is for batches
	BatchFailed               // the batch with the request failed
	BatchLost                 // the batch with the request was not answered
	BadItem                   // the request cannot be part of a batch
	ItemTooLarge              // its body is too large for that
	NotDirect                 // the worker takes requests of members only
	BadLock                   // the request for a lock is invalid
	LockHeld                  // others have the key that was to be locked
	LockGone                  // the key is not locked by whoever names the lock
	LockOther                 // the name of the lock is that of another request's
	OtherMethod               // the resource does not have the request's method
	NotFromHere               // only this machine may ask for locks
	NoToken                   // the request lacks the token
	OtherSite                 // a page of another site has sent it
	Leaving                   // the router ends

	Kinds // how many there are
)

// entry is what a kind of answer says.
type entry struct {
	status int
	name   string // in the type of application/problem+json
	title  string
	retry  bool // later it may be answered; the default of Retry-After is 1 s
}

// table has all answers of Keyway's own.
var table = [Kinds]entry{
	NoKey:         {http.StatusBadRequest, "no-key", "the request has no key", false},
	BadKey:        {http.StatusBadRequest, "bad-key", "the request's key is invalid", false},
	NoRoute:       {http.StatusNotFound, "no-route", "no route takes the request", false},
	RouteRate:     {http.StatusTooManyRequests, "route-rate", "too many requests of this kind lately, try again", true},
	NoUpstream:    {http.StatusServiceUnavailable, "no-upstream", "the server for this request cannot be reached, try again", true},
	BadMethod:     {http.StatusBadRequest, "bad-method", "the request's method is not valid in HTTP", false},
	BadTarget:     {http.StatusBadRequest, "bad-target", "the request's target has no path, an invalid host, or a #, which must be sent as %23", false},
	Connect:       {http.StatusNotImplemented, "connect", "CONNECT is not supported", false},
	Trace:         {http.StatusMethodNotAllowed, "trace", "TRACE is not allowed", false},
	HeadTooLarge:  {http.StatusRequestHeaderFieldsTooLarge, "head-too-large", "the request's headers are too large", false},
	BodyTooSlow:   {http.StatusRequestTimeout, "body-too-slow", "the request's body did not arrive in time", false},
	BodyBroken:    {http.StatusBadRequest, "body-broken", "the request's body did not arrive", false},
	BodyTooLarge:  {http.StatusRequestEntityTooLarge, "body-too-large", "the request's body is too large", false},
	GivenUp:       {http.StatusTooManyRequests, "given-up", "too many requests that this client cancelled still run", true},
	TooManyWait:   {http.StatusTooManyRequests, "too-many-wait", "too many requests wait", true},
	RateOfKey:     {http.StatusTooManyRequests, "rate-of-key", "the key has reached its rate of requests, try again", true},
	OtherVersion:  {http.StatusServiceUnavailable, "other-version", "the worker's version does not know a setting of the request's route, try again", true},
	NoOwner:       {http.StatusServiceUnavailable, "no-owner", "no worker takes requests for the key at the moment, try again", true},
	StandsAside:   {http.StatusServiceUnavailable, "stands-aside", "this router takes no requests at the moment, try another one", true},
	HoldFull:      {http.StatusServiceUnavailable, "hold-full", "too many requests wait for their workers, try again", true},
	BodiesFull:    {http.StatusServiceUnavailable, "bodies-full", "too many requests with bodies at once, try again", true},
	WorkerFull:    {http.StatusServiceUnavailable, "worker-full", "the worker is full, try again", true},
	OnwardFull:    {http.StatusServiceUnavailable, "onward-full", "too many connections to workers and apps at once, try again", true},
	MayHaveRun:    {http.StatusBadGateway, "may-have-run", "the request may have started, but there is no answer", false},
	OtherOwner:    {http.StatusMisdirectedRequest, "other-owner", "the key belongs to another worker; send the request there, or to a router", false},
	Unowned:       {http.StatusMisdirectedRequest, "unowned", "no worker serves the key yet; send the request to a router, or try again later", false},
	Unavailable:   {http.StatusServiceUnavailable, "unavailable", "the worker takes no requests for the key at the moment, try again", true},
	Quarantined:   {http.StatusServiceUnavailable, "quarantined", "workers have crashed while requests for this key ran, so it takes none for now", true},
	Nested:        {http.StatusLoopDetected, "nested", "the request would wait for a key that its own chain of calls holds", false},
	KeyHeld:       {http.StatusConflict, "key-held", "the key is held", false},
	KeyWaited:     {http.StatusServiceUnavailable, "key-waited", "the key was not free in time, try again", true},
	Deadlock:      {http.StatusServiceUnavailable, "deadlock", "the request would wait for a key whose holder waits for it, try again", true},
	NoAnswer:      {http.StatusBadGateway, "no-answer", "the app did not answer", false},
	TimedOut:      {http.StatusGatewayTimeout, "timed-out", "the request was not answered in time: it may have run", false},
	AppFull:       {http.StatusServiceUnavailable, "app-full", "the app has reached its limit of requests, try again", true},
	OwnershipLost: {http.StatusBadGateway, "ownership-lost", "the ownership of the key was lost: the request may have run", false},
	Switched:      {http.StatusBadGateway, "switched", "the app changed protocols unasked", false},
	BatchPath:     {http.StatusNotFound, "batch-path", "the path is for batches of the sidecar", false},
	BatchFailed:   {http.StatusInternalServerError, "batch-failed", "the batch with the request failed: the request may have run", false},
	BatchLost:     {http.StatusBadGateway, "batch-lost", "the batch with the request was not answered as it should be: the request may have run", false},
	BadItem:       {http.StatusBadRequest, "bad-item", "the request cannot be handled", false},
	ItemTooLarge:  {http.StatusRequestEntityTooLarge, "item-too-large", "the request's body is too large", false},
	NotDirect:     {http.StatusForbidden, "not-direct", "this worker takes requests from routers only: send the request to a router, or start the worker with --direct", false},
	BadLock:       {http.StatusBadRequest, "bad-lock", "the request for a lock is invalid", false},
	LockHeld:      {http.StatusLocked, "lock-held", "another caller holds the key", true},
	LockOther:     {http.StatusUnprocessableEntity, "lock-other", "another request has used this Idempotency-Key: choose a new one for each lock", false},
	LockGone:      {http.StatusGone, "lock-gone", "this lease no longer locks the key: it was unlocked, or others may have locked the key since; a new lock needs a new lease or Idempotency-Key", false},
	OtherMethod:   {http.StatusMethodNotAllowed, "other-method", "the resource does not support this method", false},
	NotFromHere:   {http.StatusForbidden, "not-from-here", "without --locks-token only this machine may send requests here", false},
	NoToken:       {http.StatusUnauthorized, "no-token", "the request needs the header Authorization: Bearer with the token of --locks-token", false},
	OtherSite:     {http.StatusForbidden, "other-site", "a page of another site has sent the request", false},
	Leaving:       {http.StatusServiceUnavailable, "leaving", "this router is shutting down, try another one", true},
}
