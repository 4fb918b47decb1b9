//go:build !unix

package sock

import "errors"

// On these systems package syscall offers no calls of sockets that do not block. Raw returns nil,
// so they are never used.
const supported = false

func read(uintptr, []byte) (int, error)    { return 0, errors.ErrUnsupported }
func write(uintptr, []byte) (int, error)   { return 0, errors.ErrUnsupported }
func peek(uintptr) (int, error)            { return 0, errors.ErrUnsupported }
func hungUp(uintptr) bool                  { return false }
func acknowledge(uintptr)                  {}
func refuseNew(uintptr)                    {}
func acknowledged(uintptr) (uint64, error) { return 0, errors.ErrUnsupported }
func failure(uintptr) error                { return errors.ErrUnsupported }
