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

// fieldsOf returns the fields of a mapping by their names. A name that is none of these is a mistake.
func fieldsOf(n yamlfile.Node, names ...string) map[string]yamlfile.Node {
	fields := make(map[string]yamlfile.Node)
	for _, f := range n.Fields(names) {
		fields[f.Name] = f.Value
	}
	return fields
}

// list reads a list, by what read makes of each text.
func list[T any](n yamlfile.Node, read func(text string) (T, error)) (all []T) {
	for _, e := range n.List() {
		var v T
		if set(e, &v, read) {
			all = append(all, v)
		}
	}
	return all
}

func checkName(s string) (string, error) {
	if len(s) > policy.MaxRoute || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return s, fmt.Errorf("a name has at most %d bytes and no control characters", policy.MaxRoute)
	}
	return s, nil
}

func checkMethod(s string) (string, error) {
	if !grammar.IsToken(s) || strings.ToUpper(s) != s {
		return s, fmt.Errorf("%q is not a method such as POST", s)
	}
	return s, nil
}

// checkHost returns a host's canonical form.
func checkHost(s string) (string, error) {
	if strings.Count(s, ":") > 1 && s[0] != '[' {
		s = "[" + s + "]" // an IPv6 address
	}
	host, err := keysource.HostName(s)
	name := strings.TrimPrefix(host, "*.")
	if err != nil || name == "" || strings.ContainsAny(name, "*/@?# \t") || !strings.EqualFold(host, strings.Trim(strings.TrimSuffix(s, "."), "[]")) {
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

// duration reads a duration of at least min and at most an hour.
func duration(field string, min time.Duration) func(string) (time.Duration, error) {
	return func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil || d < min || d > policy.MaxDuration {
			return 0, fmt.Errorf("%s is %q, want a duration from %v to %v, such as 500ms or 10s", field, s, min, policy.MaxDuration)
		}
		return d, nil
	}
}

// number reads an integer from 1 to most.
func number(field string, most int) func(string) (int, error) {
	return func(s string) (int, error) {
		v, err := strconv.Atoi(s)
		if err != nil || v < 1 || v > most {
			return 0, fmt.Errorf("%s is %q, want an integer from 1 to %d", field, s, most)
		}
		return v, nil
	}
}

// isUnbuffered reads whether bodies go to the worker as they come.
func isUnbuffered(s string) (bool, error) {
	if s != "true" && s != "false" {
		return false, fmt.Errorf("buffer is %q, want true or false", s)
	}
	return s == "false", nil
}

// size reads a number of bytes, such as 65536, 64KiB, 10MiB or 1GiB.
func size(s string) (int64, error) {
	digits, shift := s, 0
	for unit, bits := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30} {
		if d, ok := strings.CutSuffix(s, unit); ok {
			digits, shift = strings.TrimSpace(d), bits
		}
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || v < 1 || v > math.MaxInt64>>(shift+10) {
		return 0, fmt.Errorf("max is %q, want a size such as 65536, 64KiB or 10MiB", s)
	}
	return v << shift, nil
}

// rate reads a rate such as 5/s. All requests of one such interval may come at once.
func rate(s string) (policy.Rate, error) {
	count, unit, _ := strings.Cut(s, "/")
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	v, err := strconv.ParseUint(count, 10, 32)
	r := policy.Rate{PerSecond: float64(v) / seconds, Burst: int(min(v, policy.MaxBurst))}
	if p := (policy.Policy{Rate: r}); err != nil || seconds == 0 || v == 0 || p.Check() != nil {
		return policy.Rate{}, fmt.Errorf("rate %q, want such as 5/s, 100/m or 1000/h, at most %d/s", s, int(policy.MaxPerSecond))
	}
	return r, nil
}
