// Package otlptest decodes the spans that the programs send with OpenTelemetry's own types of OTLP, and
// compares them with what its own exporter makes of the same spans. It is a module of its own, so that
// these are no requirement of Keyway's users.
package otlptest
