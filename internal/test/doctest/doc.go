// Package doctest runs the commands and compiles the Go of README.md and docs/.
package doctest
