// Package placement simulates clusters whose partitions are placed by load (make simulate): the planner alone in a
// thousand rounds, and all of a cluster in virtual time.
package placement
