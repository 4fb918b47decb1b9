package cli

import (
	"os"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/internal/nearest"
)

// programFlags are the flags of all programs. One environment may serve several
// programs, so each accepts the variables of the others.
const programFlags = `
abandoned-timeout access-log access-log-keys access-log-sample access-log-slow admin admin-host admin-token admin-token-file advertise answer-files answer-memory app-connections batch batch-linger batch-max body-dir body-files cluster config direct drain-notice drain-timeout gossip
gossip-advertise gossip-key gossip-open hold join key listen lock-file locks locks-token locks-token-file log log-level
max-body max-connections max-connections-per-client max-held max-lease max-wait min-body-rate name new-cluster on-redis-loss partitions peer-ca peer-cert peer-key peer-name peer-tls-optional placement proxy-protocol public queue
queue-per-key redis replay-bytes routes session-ttl store timeout tls-cert tls-key trace-keys trusted-proxies upgrade
supervise without-key weight witness upstream upstream-health`

// EnvName returns the name of a flag's environment variable.
func EnvName(name string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// readEnvironment sets the flags that are not set from their variables; an empty one
// counts as absent, since that is how compose files and manifests leave one out.
func (f *Flags) readEnvironment() error {
	for _, name := range f.own() {
		value := os.Getenv(EnvName(name))
		if value == "" || f.Stated(name) {
			continue
		}
		if err := f.set.Set(name, value); err != nil {
			return Usagef("%s: %v", EnvName(name), err)
		}
		f.shared = append(f.shared, name)
	}
	return nil
}

// checkEnvironment refuses variables with our prefix that no program reads, since their settings
// would have no effect.
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
		flag := nearest.Name(strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, envPrefix), "_", "-")), known)
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

// isServiceLink reports whether Kubernetes sets the variable in every container for a service named
// keyway or keyway-…, as Docker's links did.
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
