package cli

import (
	"slices"
	"strings"
)

// programFlags are the flags of all programs. One environment may serve several
// programs, so each accepts the variables of the others.
const programFlags = `
abandoned-timeout admin advertise answer-files answer-memory app-connections batch batch-linger batch-max body-dir body-files cluster config drain-timeout gossip
gossip-advertise gossip-key hold join key listen lock-file log log-level
max-body max-connections max-connections-per-client max-held max-wait min-body-rate name new-cluster on-redis-loss partitions proxy-protocol queue
queue-per-key redis replay-bytes session-ttl timeout tls-cert tls-key trusted-proxies upgrade
upstream upstream-health`

// checkEnvironment refuses variables with our prefix that no program reads:
// each is a setting that somebody believes to have set.
func (f *Flags) checkEnvironment(environ []string) error {
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) || value == "" || isServiceLink(name, value) {
			continue
		}
		known := f.known()
		if slices.ContainsFunc(known, func(flag string) bool { return EnvName(flag) == name }) {
			continue
		}
		flag := nearest(strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, envPrefix), "_", "-")), known)
		return Usagef("unknown environment variable %s; the nearest one is %s (%s --help lists the flags)", name, EnvName(flag), f.name)
	}
	return nil
}

// known returns the flags of this program and of the others, sorted.
func (f *Flags) known() []string {
	names := append(strings.Fields(programFlags), f.own()...)
	slices.Sort(names)
	return slices.Compact(names)
}

// own returns the flags of this program in their order.
func (f *Flags) own() []string {
	var names []string
	for _, g := range f.groups {
		names = append(names, g.names...)
	}
	return names
}

// isServiceLink reports whether a variable is one of those that Kubernetes
// sets in every container for a service named keyway or keyway-…, after
// Docker's links.
func isServiceLink(name, value string) bool {
	switch {
	case strings.HasSuffix(name, "_SERVICE_HOST"), strings.Contains(name, "_SERVICE_PORT"):
		return true
	case strings.HasSuffix(name, "_PORT"):
		return strings.Contains(value, "://")
	}
	_, port, _ := strings.Cut(name, "_PORT_")
	digits := strings.TrimLeft(port, "0123456789")
	return len(digits) < len(port) && (strings.HasPrefix(digits, "_TCP") || strings.HasPrefix(digits, "_UDP") || strings.HasPrefix(digits, "_SCTP"))
}

// nearest returns the name with the least edit distance to s, the first of
// several.
func nearest(s string, names []string) string {
	return slices.MinFunc(names, func(a, b string) int { return editDistance(s, a) - editDistance(s, b) })
}

// editDistance counts the characters to insert, remove or replace (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j]+1, diagonal+1, replaced)
		}
	}
	return row[len(b)]
}
