package lockservice

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/pattern"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// lockRequest is a request of a client about locks. Its handler's goroutine owns it; after parsing
// only asked changes.
type lockRequest struct {
	keys    []string // sorted, each once
	single  bool     // there is one, in the path
	lease   lockLease
	chosen  bool          // by the client, with Idempotency-Key
	ttl     time.Duration // 0 for the session TTL
	wait    time.Duration // for others, and for an owner
	until   time.Time     // when the wait is over
	asked   int           // how many of the keys their owners have been asked for
	label   string
	shared  bool     // for reading
	baggage []string // the request's
	client  uint64   // see [hop.ClientID]
	number  uint64   // of the request, in all calls for it; not 0
}

// lockLease is what a client names its locks by. The hold of each key has an id made of it, so
// that several keys have one lease.
type lockLease [16]byte

func (l lockLease) String() string { return hex.EncodeToString(l[:]) }

func (l lockLease) id(key string) holds.ID {
	sum := sha256.Sum256(append(append([]byte("keyway lock\x00"), l[:]...), key...))
	return holds.ID(sum[:len(holds.ID{})])
}

// badLock says what is wrong with a request about locks.
func badLock(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return refuse(problem.Of(problem.BadLock).With(text), "a request for a lock: %s", text)
}

// lockParameters are the parameters that operations know, in addition to key.
var lockParameters = [lockOperations][]string{
	opLock: {"ttl", "wait", "label", "mode"}, opExtend: {"ttl", "lease"}, opUnlock: {"lease"},
}

// parseLockRequest reads a request. Unknown parameters are errors: a client that misspells wait
// would otherwise not wait.
func parseLockRequest(r *http.Request, op lockOperation, single bool) (*lockRequest, error) {
	if r.ContentLength != 0 {
		return nil, badLock("it has a body: what it wants stands in the query")
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr) // "" for a Unix socket
	q := &lockRequest{single: single, baggage: r.Header["Baggage"], client: hop.ClientID(host), number: 1 + mathrand.Uint64N(math.MaxUint64)}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badLock("its query cannot be read: %v", err)
	}
	if q.keys, err = lockKeys(r, values["key"], single); err != nil {
		return nil, err
	}
	delete(values, "key")
	for name, list := range values {
		switch known := lockParameters[op]; {
		case !slices.Contains(known, name):
			return nil, badLock("%s takes no parameter %.64q; it takes %s", r.Method, name, strings.Join(append([]string{"key"}, known...), ", "))
		case len(list) != 1:
			return nil, badLock("%s is given more than once", name)
		}
	}
	if q.wait, err = lockTime(values, "wait"); err != nil {
		return nil, err
	}
	q.until = time.Now().Add(q.wait)
	if q.ttl, err = lockTime(values, "ttl"); err != nil {
		return nil, err
	}
	if values.Has("ttl") && q.ttl < locking.ShortestTTL {
		return nil, badLock("ttl=%s: want %v at least", values.Get("ttl"), locking.ShortestTTL)
	}
	if q.label = values.Get("label"); !holds.IsLabel(q.label) {
		return nil, badLock("label has %d bytes: want %d at most, of text in UTF-8 without control characters", len(q.label), holds.MaxLabel)
	}
	switch mode := values.Get("mode"); mode {
	case "", "write":
	case "read":
		q.shared = true
	default:
		return nil, badLock("mode=%.64q: want read, to share the key with others who read, or write", mode)
	}
	if op == opInspect {
		return q, nil
	}
	q.lease, q.chosen, err = leaseOf(r, op, values.Get("lease"))
	return q, err
}

// lockKeys returns the keys of a request: that of its path, or those of its query.
func lockKeys(r *http.Request, named []string, single bool) ([]string, error) {
	if single {
		if len(named) > 0 {
			return nil, badLock("there is a key in the path and one in the query: several keys stand in the query of %s", lockPath)
		}
		key, err := keyOfLockPath(r.URL.EscapedPath())
		return []string{key}, err
	}
	for _, key := range named {
		if err := keysource.Check(key); err != nil {
			return nil, err
		}
	}
	keys := slices.Compact(slices.Sorted(slices.Values(named)))
	switch {
	case len(keys) == 0:
		return nil, badLock("it names no key: want %s/KEY, or key=KEY in the query", lockPath)
	case len(keys) > holds.MaxKeys:
		return nil, badLock("%d keys, the limit is %d", len(keys), holds.MaxKeys)
	}
	return keys, nil
}

// keyOfLockPath returns the key in the path of a single lock. The same text is the same key there
// and in the path of a request.
func keyOfLockPath(path string) (string, error) {
	key, err := url.PathUnescape(strings.TrimPrefix(path, lockPath+"/"))
	if err != nil || pattern.HasDots("/"+key) || strings.Contains(path[len(lockPath)+1:], "/") {
		return "", fmt.Errorf("%w: the path must have one segment after %s, with %%2F for a slash; send a key of dots in the query, as key=KEY", gateway.ErrBadKey, lockPath)
	}
	return key, keysource.Check(key)
}

// lockTime returns the duration of a parameter, 0 if it is missing.
func lockTime(values url.Values, name string) (time.Duration, error) {
	text := cmp.Or(values.Get(name), "0")
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, badLock("%s=%.64q: want a time such as 30s, 1m30s or 500ms", name, text)
	}
	return min(d, math.MaxInt64/2), nil // more can be added to it
}

// maxIdempotencyKey is the length of the longest value of Idempotency-Key, in bytes.
const maxIdempotencyKey = 255

// leaseOf returns the lease that a request names: by the parameter lease or, for a lease of the
// client's own, by the field Idempotency-Key (draft-ietf-httpapi-idempotency-key-header). A request
// for a lock without either gets a new lease.
func leaseOf(r *http.Request, op lockOperation, text string) (l lockLease, chosen bool, err error) {
	fields := r.Header["Idempotency-Key"]
	switch {
	case len(fields) > 0 && text != "":
		return l, false, badLock("it has a lease and an Idempotency-Key: want one of them")
	case len(fields) > 0:
		value := strings.Trim(grammar.Trim(fields[0]), `"`)
		if len(fields) > 1 || value == "" || len(value) > maxIdempotencyKey {
			return l, false, badLock("want one Idempotency-Key, of up to %d bytes", maxIdempotencyKey)
		}
		sum := sha256.Sum256([]byte("keyway lease\x00" + value))
		return lockLease(sum[:len(l)]), true, nil
	case text == "" && op == opLock:
		_, _ = rand.Read(l[:]) // never fails
		return l, false, nil
	}
	if n, err := hex.Decode(l[:], []byte(text[:min(len(text), 2*len(l))])); err != nil || n != len(l) || len(text) != 2*n {
		return l, false, badLock("lease=%.64q: want the lease of the answer to POST, or the Idempotency-Key of that", text)
	}
	return l, false, nil
}
