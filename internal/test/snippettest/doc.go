// Package snippettest runs what docs/lock-service.md shows of a shell, Python and Node against a
// lock service.
package snippettest
