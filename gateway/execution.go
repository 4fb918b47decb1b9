package gateway

import "context"

// Execution is one admitted run of a function. It holds its key, or several keys
// together: no other execution of a key runs, on any worker, until it ends. It is a
// small value, valid until the function that received it returns.
type Execution struct {
	holder holder
	life   uint64
	key    string
	token  int64
}

// holder is what holds the keys of an [Execution].
type holder interface {
	// ExecutionContext is [Execution.Context] of the execution with life and key.
	ExecutionContext(life uint64, key string) context.Context
}

// severalKeys is a holder of several keys.
type severalKeys interface {
	Keys() []string           // sorted, each once
	TokenOf(key string) int64 // 0 for a key that is none of Keys
}

// NewExecution returns an execution; programs need it in tests only. life tells executions of a
// reused holder apart.
func NewExecution(h holder, life uint64, key string, token int64) Execution {
	return Execution{h, life, key, token}
}

// Key returns the key that is held, of several keys the first by the order of bytes.
func (x Execution) Key() string { return x.key }

// Token returns the fencing token of [Execution.Key]. Tokens strictly increase from one execution
// of a key to the next, on all workers. A resource that refuses lower ones therefore never applies
// an older owner's write after a newer one's.
func (x Execution) Token() int64 { return x.token }

// Keys returns all keys that are held, sorted, each once.
func (x Execution) Keys() []string {
	if s, ok := x.holder.(severalKeys); ok {
		return s.Keys()
	}
	return []string{x.key}
}

// TokenOf returns the fencing token of one of Keys, 0 for any other key.
func (x Execution) TokenOf(key string) int64 {
	if s, ok := x.holder.(severalKeys); ok {
		return s.TokenOf(key)
	}
	if key == x.key {
		return x.token
	}
	return 0
}

// Context returns the context to work under. It descends from the caller's. It is
// cancelled with a cause that wraps [ErrOwnershipLost] when the ownership of a key
// can no longer be confirmed, and when the execution ends. It is made when first
// asked for.
func (x Execution) Context() context.Context {
	return x.holder.ExecutionContext(x.life, x.key)
}
