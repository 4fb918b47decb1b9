package holds

import (
	"cmp"
	"sync"
)

// MaxKeys bounds how many keys are held together.
const MaxKeys = 64

// Each calls f with all of one list at once, and returns what it returns, and the first error in
// the list's order.
func Each[E, T any](of []E, f func(E) (T, error)) ([]T, error) {
	list, errs := make([]T, len(of)), make([]error, len(of))
	var all sync.WaitGroup
	for i, e := range of {
		all.Go(func() { list[i], errs[i] = f(e) })
	}
	all.Wait()
	return list, cmp.Or(errs...)
}
