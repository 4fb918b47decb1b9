// Package historytest checks histories of calls for linearizability: Do, TryDo,
// Share and batches mixed on few keys, DoAll over several workers, and requests of
// which equal reads run once, while
// workers join, leave, crash and lose their store and their connections, and
// callers leave. It is a module of its own, so that the checker is no
// requirement of Keyway's users.
package historytest
