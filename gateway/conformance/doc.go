// Package conformance holds the router, the worker and the sidecar, as the
// programs that users run, to tests that others have written: h2spec, gRPC's
// interoperability programs, a WebSocket library, curl and nginx. It has tests only.
// It also has web frameworks read generated requests, and compares what they work on
// with the keys. docs/conformance.md lists what runs.
package conformance
