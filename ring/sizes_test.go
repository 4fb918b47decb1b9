//go:build !race

package ring_test

var sizes = []int{1, 3, 10, 100, 1000}
