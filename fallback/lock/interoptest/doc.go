// Package interoptest shows which locks of other libraries exclude those of package lock, and
// compiles and runs the Go code of docs/migrating.md. It is a module of its own, so that only it
// requires these libraries.
package interoptest
