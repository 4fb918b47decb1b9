# `make` prints the targets. A target is described by the text after its ##.

T ?= 10s

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## start a router and three workers on this machine, until Ctrl-C
	@go build -o bin/ ./internal/cmd/dev && exec bin/dev

.PHONY: build
build: ## make the static binaries bin/router and bin/worker
	CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -ldflags=-s -o bin/ ./cmd/router ./cmd/worker

.PHONY: release
release: ## make the files of a release in dist/: archives, SBOMs, images (make release VERSION=v0.1.0; default the commit's tag)
	scripts/release $(VERSION)

.PHONY: test
test: ## run all tests of all modules, with the race detector
	scripts/test

.PHONY: check
check: ## look for unformatted, dated, suspicious and untidy code in all modules
	scripts/check

.PHONY: bench
bench: ## run the benchmarks
	go test -run '^$$' -bench . -benchmem ./...

.PHONY: bench-hop
bench-hop: ## measure the router against HAProxy and nginx (make bench-hop ARGS=--help)
	scripts/deps haproxy nginx redis-server
	go -C loadtest run ./hop $(ARGS)

.PHONY: bench-locks
bench-locks: ## measure what a lock costs in the worker that keeps it, and beside others (make bench-locks ARGS=--help)
	scripts/deps redis-server $(if $(findstring etcd,$(ARGS)),etcd-server)
	go -C loadtest run ./locks $(ARGS)

.PHONY: scale
scale: ## measure what 3 to 100 idle workers cost Redis and themselves
	scripts/deps redis-server
	go test ./gateway/worker -run '^$$' -bench IdleWorkers -benchtime 1x -timeout 30m

.PHONY: scale-plot
scale-plot: ## simulate clusters of up to 1,000 workers, print the table of docs/scale.md and write its plot
	go -C loadtest test ./growth -v -count 1 -args -most 1000 -plot $(CURDIR)/docs/images/scale.svg

.PHONY: simulate
simulate: SEED = 1
simulate: ## simulate placement by load, print the tables of docs/placement.md and write its plots (make simulate SEED=2)
	go -C loadtest test ./placement -v -count 1 -timeout 30m -args -seed $(SEED) -rounds 1000 -clusters 10 -plots $(CURDIR)/docs/images

.PHONY: scale-start
scale-start: START = 30
scale-start: ## start START workers at once and measure when they have settled, and what they cost then (docs/scale.md)
	scripts/deps redis-server
	go test ./internal/cluster -run '^$$' -bench 'Start$$' -benchtime 1x -args -start $(START)

.PHONY: slack
slack: ## measure how late workers renew their sessions, idle, loaded and with CPU quotas, as root on Linux (make slack ARGS='-ttl 4s')
	scripts/deps redis-server
	go -C loadtest run ./slack $(ARGS)

.PHONY: skew
skew: ## measure what placement by load gains for workers with a tenth of a core each, as root on Linux (make skew ARGS=--help)
	scripts/deps redis-server
	go -C loadtest run ./skew $(ARGS)

.PHONY: soak
soak: T = 60
soak: ## load routers, doors and sidecars for T seconds in each of some ways and look whether they grow (make soak T=600)
	scripts/deps redis-server
	go -C loadtest run ./hop -scenarios 1000,tls,h2,sidecar,doors -rounds 1 -seconds $(T) $(ARGS)

.PHONY: loadtest
loadtest: ## compare Keyway with Redis locks in less than 4 minutes (make loadtest ARGS=--help; see docs/benchmarks.md)
	scripts/deps nginx postgresql redis-server
	go -C loadtest run . --short $(ARGS)

.PHONY: fuzz
fuzz: ## run every fuzz function for T (make fuzz T=1m; default 10s)
	scripts/fuzz $(T)

.PHONY: chaos
chaos: T = 60s
chaos: ## try the promises on real processes for T (make chaos T=5m ARGS=-doors; default 60s; ARGS=--help)
	scripts/deps redis-server $(if $(findstring doors,$(ARGS)),nginx)
	cd internal/cmd/chaos && go run . -t $(T) $(ARGS)

.PHONY: campaign
campaign: T = 10m
campaign: ## try the promises on hosts of a network with every fault for T, as root on Linux (make campaign T=1h ARGS=--help; default 10m)
	scripts/deps gcc iproute2 libc6-dev redis-sentinel redis-server $(if $(findstring etcd,$(ARGS)),etcd-server)
	cd internal/cmd/chaos && go run ./campaign -t $(T) $(ARGS)

.PHONY: faults
faults: ## print what each fault costs clients, with each store, in half an hour (make faults ARGS='kill etcd'; ARGS=--help)
	scripts/deps etcd-server redis-sentinel redis-server
	cd internal/cmd/chaos && go run ./faults $(ARGS)

.PHONY: mutants
mutants: ## take the rules away one at a time and see their tests fail (make mutants ARGS='-only internal/keytable'; ARGS=-fit only looks whether they fit the code)
	scripts/deps redis-server
	go run ./internal/cmd/mutants $(ARGS)

.PHONY: conformance
conformance: N = 20000
conformance: ## have seven web stacks read N generated requests each, and compare what they work on with the keys (make conformance N=100000 ARGS='-seed 7')
	scripts/deps default-jdk-headless gunicorn nginx node-express puma python3-django python3-flask ruby-sinatra tomcat10
	go -C gateway/conformance test -count 1 -timeout 2h -run 'TestStacks|TestOrdinary' -args -stacks -requests $(N) $(ARGS)

.PHONY: deploy-test
deploy-test: ## try deploy/ on a Docker engine: images, compose.yaml, each service restarted under load
	scripts/deps debootstrap docker-compose
	go -C deploy/test run ./play $(ARGS)
