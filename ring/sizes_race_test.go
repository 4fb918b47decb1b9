//go:build race

package ring_test

// A circle of 1000 members takes the library over a minute to sort under the
// race detector.
var sizes = []int{1, 3, 10, 100}
