// Package placement simulates clusters whose partitions are placed by load (make simulate).
package placement
