package etcd

import (
	"errors"
	"fmt"
	"testing"

	"github.com/keyway-go/keyway/internal/records"
)

// TestTogether: the caller takes a definite error to mean that nothing was written.
func TestTogether(t *testing.T) {
	t.Parallel()
	lost := errors.New("no answer")
	gone := fmt.Errorf("part: %w", records.ErrSessionGone)
	for _, c := range []struct {
		parts []error
		want  error
	}{
		{[]error{nil, nil}, nil},
		{[]error{gone}, records.ErrSessionGone},
		{[]error{gone, records.ErrGeneration}, records.ErrGeneration},
		{[]error{gone, nil}, errPartly},
		{[]error{nil, records.ErrGeneration}, errPartly},
		{[]error{gone, lost, nil}, lost},
		{[]error{lost, gone}, lost},
		{[]error{gone, errPartly}, errPartly},
	} {
		err := together(c.parts...)
		if !errors.Is(err, c.want) || isDefinite(err) != isDefinite(c.want) {
			t.Errorf("%v together are %v, want %v", c.parts, err, c.want)
		}
	}
}
