module github.com/keyway-go/keyway/localmutex/bench

go 1.26.0

replace github.com/keyway-go/keyway => ../..

require (
	github.com/containerd/containerd v1.7.27
	github.com/dapr/kit v0.15.0
	github.com/gammazero/keymutex v0.1.0
	github.com/keyway-go/keyway v0.0.0
	github.com/moby/locker v1.0.1
	github.com/puzpuzpuz/xsync/v4 v4.5.0
	k8s.io/utils v0.0.0-20260707023825-cf1189d6abe3
)

require golang.org/x/sync v0.24.0 // indirect
