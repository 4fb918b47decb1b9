// Package interoptest shows which locks of other libraries exclude those of package lock, and which not, and compiles
// and runs the Go of docs/migrating.md. It is a module of its own, so that nobody else gets these libraries.
package interoptest
