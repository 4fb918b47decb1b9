// Package storeurl opens the store that the flag --store or --redis names.
package storeurl

import (
	"github.com/keyway-go/keyway/fallback/etcd"
	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/cli"
)

// Open opens the store in the Redis or etcd of a URL, as an S, an interface that both of them have. It does no network
// I/O. If the URL is wrong, it returns a usage error.
func Open[S any](url string, cfg store.Config) (opened S, err error) {
	var s any
	hint := ""
	if etcd.Handles(url) {
		s, err = etcd.New(url, cfg)
	} else {
		s, err = store.New(url, cfg)
		hint = "; for an etcd etcd://host:2379, or etcds:// for TLS"
	}
	if err != nil {
		return opened, cli.Usagef("--store or --redis: %v%s", err, hint)
	}
	return s.(S), nil
}
