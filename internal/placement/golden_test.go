package placement_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/internal/test/golden"
)

// TestTranscripts plays the scenarios in testdata. Each line that begins with ">" is a command. Below it is each round that
// differs from the one before, with the loads of the workers and the placements after it. The commands are the cases of
// script.command. A worker is a letter, and a partition a place in the ring.
func TestTranscripts(t *testing.T) { golden.Play(t, play) }

// script plays a scenario.
type script struct {
	cfg     placement.Config
	planner *placement.Planner
	c       placement.Cluster
	now     time.Duration
	said    string // of the latest round
	out     bytes.Buffer
}

func play(t *testing.T, text string) []byte {
	t.Helper()
	s := &script{planner: placement.New(placement.Config{})}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, ">"):
			fmt.Fprintln(&s.out, line)
			if err := s.command(strings.Fields(line[1:])); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		case line == "" || strings.HasPrefix(line, "#"):
			fmt.Fprintln(&s.out, line)
		}
	}
	return s.out.Bytes()
}

// command carries out one line of a scenario.
func (s *script) command(f []string) error {
	switch f[0] {
	case "config": // config tolerance churn placements capacity: a new Planner with them
		v, err := numbers(f[1:])
		if err != nil {
			return err
		}
		v = append(v, 0, 0, 0, 0)
		s.cfg = placement.Config{Tolerance: v[0], Churn: v[1], Placements: int(v[2]), Capacity: v[3]}
		s.planner = placement.New(s.cfg)
	case "restart": // another Planner takes over
		s.planner = placement.New(s.cfg)
	case "workers": // workers a b:2: those on the ring, with their weights
		s.c.Workers = nil
		for _, w := range f[1:] {
			name, weight, _ := strings.Cut(w, ":")
			n, _ := strconv.ParseFloat(weight, 64)
			s.c.Workers = append(s.c.Workers, placement.Worker{Name: name, Weight: n})
		}
	case "ring": // ring aabb: by partition, its owner
		s.c.Ring = nil
		for _, name := range f[1] {
			s.c.Ring = append(s.c.Ring, int32(slices.IndexFunc(s.c.Workers, func(w placement.Worker) bool { return w.Name == string(name) })))
		}
	case "loads": // loads 1 2 3 4: by partition
		var err error
		s.c.Loads, err = numbers(f[1:])
		return err
	case "place", "pin", "unplace": // pin 3 b: by hand
		p, err := strconv.Atoi(f[1])
		if err != nil {
			return err
		}
		s.c.Placed = slices.DeleteFunc(s.c.Placed, func(q placement.Placement) bool { return q.Partition == p })
		if f[0] != "unplace" {
			s.c.Placed = append(s.c.Placed, placement.Placement{Partition: p, Worker: f[2], Pinned: f[0] == "pin"})
		}
	case "run": // run 60s: the rounds of this time
		d, err := time.ParseDuration(f[1])
		for end := s.now + d; s.now < end; {
			s.round()
			s.now += placement.Round
		}
		return err
	default:
		return fmt.Errorf("unknown")
	}
	return nil
}

func numbers(f []string) (v []float64, err error) {
	for _, s := range f {
		n, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return nil, err
		}
		v = append(v, n)
	}
	return v, nil
}

func (s *script) round() {
	next, why := s.planner.Plan(s.now, s.c)
	s.c.Placed = next
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %.0f %% above", why.Outcome, 100*why.After)
	if why.Ended > 0 {
		fmt.Fprintf(&b, ", %d ended", why.Ended)
	}
	for _, m := range why.Moves {
		fmt.Fprintf(&b, ", p%d %s→%s", m.Partition, m.From, m.To)
		if s.c.Workers[s.c.Ring[m.Partition]].Name == m.To {
			b.WriteString(" home")
		}
	}
	b.WriteString(";")
	sum := make([]float64, len(s.c.Workers))
	owners := slices.Clone(s.c.Ring)
	for _, p := range s.c.Placed {
		if i := slices.IndexFunc(s.c.Workers, func(w placement.Worker) bool { return w.Name == p.Worker }); i >= 0 {
			owners[p.Partition] = int32(i)
		}
	}
	for p, w := range owners {
		if w >= 0 {
			sum[w] += s.c.Loads[p]
		}
	}
	for i, w := range s.c.Workers {
		fmt.Fprintf(&b, " %s %g", w.Name, sum[i])
	}
	if said := strings.TrimRight(strings.ReplaceAll(b.String()+"; "+placement.Encode(s.c.Placed), "\n", " "), " "); said != s.said {
		fmt.Fprintf(&s.out, "%4.0fs %s\n", s.now.Seconds(), said)
		s.said = said
	}
}
