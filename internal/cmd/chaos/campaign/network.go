package main

import (
	"github.com/keyway-go/keyway/internal/cmd/chaos/fabric"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// ways returns those from near to far hosts and back, as far as a direction
// says.
func ways(near, far []string, direction trial.Direction) (all []fabric.Way) {
	for _, a := range near {
		for _, b := range far {
			if direction != trial.Inward {
				all = append(all, fabric.Way{From: a, To: b})
			}
			if direction != trial.Outward {
				all = append(all, fabric.Way{From: b, To: a})
			}
		}
	}
	return all
}
