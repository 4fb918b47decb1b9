// Package historytest checks histories of a worker's Do and Share for
// linearizability. It is a module of its own, so that the checker is no
// requirement of Keyway's users.
package historytest
