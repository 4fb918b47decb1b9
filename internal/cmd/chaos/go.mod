module github.com/keyway-go/keyway/internal/cmd/chaos

go 1.26.0

replace github.com/keyway-go/keyway => ../../..

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/keyway-go/keyway v0.0.0-00010101000000-000000000000
)
