//go:build !linux

package sock

import "errors"

// On these systems Raw returns nil, so that only RefuseNew is ever used.
const supported = false

func read(uintptr, []byte) (int, error)    { return 0, errors.ErrUnsupported }
func write(uintptr, []byte) (int, error)   { return 0, errors.ErrUnsupported }
func peek(uintptr) (int, error)            { return 0, errors.ErrUnsupported }
func Acknowledge(uintptr)                  {}
func RefuseNew(uintptr)                    {}
func HungUp(uintptr) bool                  { return false }
func Acknowledged(uintptr) (uint64, error) { return 0, errors.ErrUnsupported }
func Failure(uintptr) error                { return errors.ErrUnsupported }
