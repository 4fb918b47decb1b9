module github.com/keyway-go/keyway/internal/wire/link/bench

go 1.26.0

replace github.com/keyway-go/keyway => ../../../..

require (
	github.com/hashicorp/yamux v0.1.2
	github.com/keyway-go/keyway v0.0.0-00010101000000-000000000000
	storj.io/drpc v0.0.34
)

require github.com/zeebo/errs v1.2.2 // indirect
