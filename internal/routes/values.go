package routes

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/yamlfile"
)

// texts reads a list. check returns an item's canonical form, or its mistake.
func texts(n yamlfile.Node, check func(string) (string, error)) (list []string) {
	for _, e := range n.List() {
		with(e, func(n yamlfile.Node, s string) {
			s, err := check(s)
			if err != nil {
				n.Errorf("%v", err)
				return
			}
			list = append(list, s)
		})
	}
	return list
}

func checkMethod(s string) (string, error) {
	if !grammar.IsToken(s) || strings.ToUpper(s) != s {
		return s, fmt.Errorf("%q is not a method such as POST", s)
	}
	return s, nil
}

// checkHost returns a host's canonical form.
func checkHost(s string) (string, error) {
	host := keysource.HostName(s)
	name := strings.TrimPrefix(host, "*.")
	if name == "" || strings.ContainsAny(name, "*/@?# \t") || !strings.EqualFold(host, strings.Trim(strings.TrimSuffix(s, "."), "[]")) {
		return host, fmt.Errorf("%q is not a host such as shop.example or *.shop.example, without a port", s)
	}
	return host, nil
}

func hostPort(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" || strings.ContainsAny(host, "/@?# ") {
		return "", errors.New("not host:port")
	}
	return s, nil
}

// duration reads a duration of at least min and at most an hour; 0 if the file has none.
func duration(n yamlfile.Node, field string, min time.Duration) (d time.Duration) {
	with(n, func(n yamlfile.Node, s string) {
		var err error
		if d, err = time.ParseDuration(s); err != nil || d < min || d > policy.MaxDuration {
			n.Errorf("%s is %q, want a duration from %v to %v, such as 500ms or 10s", field, s, min, policy.MaxDuration)
			d = 0
		}
	})
	return d
}

// number reads an integer from 1 to most.
func number(n yamlfile.Node, s, field string, most int) int {
	v, err := strconv.Atoi(s)
	if err != nil || v < 1 || v > most {
		n.Errorf("%s is %q, want an integer from 1 to %d", field, s, most)
		return 0
	}
	return v
}

// size reads a number of bytes, such as 65536, 64KiB, 10MiB or 1GiB.
func size(n yamlfile.Node, s string) int64 {
	digits, shift := s, 0
	for unit, bits := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30} {
		if d, ok := strings.CutSuffix(s, unit); ok {
			digits, shift = strings.TrimSpace(d), bits
		}
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || v < 1 || v > math.MaxInt64>>(shift+10) {
		n.Errorf("max is %q, want a size such as 65536, 64KiB or 10MiB", s)
		return 0
	}
	return v << shift
}

// rate reads a rate such as 5/s. All requests of one such interval may come at once.
func rate(n yamlfile.Node, s string) policy.Rate {
	count, unit, _ := strings.Cut(s, "/")
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	v, err := strconv.ParseUint(count, 10, 32)
	r := policy.Rate{PerSecond: float64(v) / seconds, Burst: int(min(v, policy.MaxBurst))}
	if p := (policy.Policy{Rate: r}); err != nil || seconds == 0 || v == 0 || p.Check() != nil {
		n.Errorf("rate %q, want such as 5/s, 100/m or 1000/h, at most %d/s", s, int(policy.MaxPerSecond))
		return policy.Rate{}
	}
	return r
}
