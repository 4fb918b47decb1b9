package main

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

func shortForm() conditions {
	return conditions{Time: 20 * time.Second, Calm: 2 * time.Second, TTL: 4 * time.Second, Hold: 15 * time.Second}
}

func longForm() conditions {
	return conditions{Time: time.Minute, Calm: 3 * time.Second, TTL: 10 * time.Second, Hold: 15 * time.Second}
}

func planOf(seed uint64, c conditions) []act { return plan(rand.New(rand.NewPCG(seed, 0)), c) }

func TestPlanCoversEveryKind(t *testing.T) {
	for seed := range uint64(200) {
		seen := make(map[kind]int)
		for _, a := range planOf(seed, longForm()) {
			seen[a.Kind]++
		}
		for k := range eventKinds {
			if seen[k] == 0 {
				t.Errorf("seed %d: no %s in %v", seed, k, planOf(seed, longForm()))
			}
		}
		seen = make(map[kind]int)
		for _, a := range planOf(seed, shortForm()) {
			seen[a.Kind]++
		}
		if seen[join] == 0 || seen[leave] == 0 || seen[kill]+seen[restart] == 0 || seen[redisRestart] == 0 || seen[redisLoss] == 0 {
			t.Errorf("seed %d: the short form is only %v", seed, planOf(seed, shortForm()))
		}
	}
}

func TestPlanKeepsItsConditions(t *testing.T) {
	five := longForm()
	five.Time = 5 * time.Minute
	for _, c := range []conditions{shortForm(), longForm(), five} {
		for seed := range uint64(100) {
			acts := planOf(seed, c)
			if !reflect.DeepEqual(acts, planOf(seed, c)) {
				t.Fatalf("seed %d: two plans", seed)
			}
			for i, a := range acts {
				if a.At < c.Calm || a.At > c.Time {
					t.Errorf("seed %d: %v at %v", seed, a, a.At)
				}
				if n := len(after(acts[:i+1])); n < minWorkers || n > maxWorkers {
					t.Errorf("seed %d: %d workers after %v at %v", seed, n, a, a.At)
				}
				for _, b := range acts[:i] {
					if a.At < b.At+c.gap(b.Kind, a.Kind) {
						t.Errorf("seed %d: %v at %v, too early after %v at %v", seed, a, a.At, b, b.At)
					}
				}
			}
		}
	}
}

func TestLongPlanStartsAgain(t *testing.T) {
	c := longForm()
	c.Time = 5 * time.Minute
	if acts := planOf(1, c); len(acts) < 30 || acts[len(acts)-1].At < 4*time.Minute {
		t.Errorf("5 minutes have only %d events: %v", len(acts), acts)
	}
}
