module github.com/keyway-go/keyway/gateway/historytest

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/keyway-go/keyway v0.0.0
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/buraksezer/consistent v1.1.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/goccy/go-yaml v1.18.0 // indirect
	github.com/pires/go-proxyproto v0.8.1 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

replace github.com/keyway-go/keyway => ../..
