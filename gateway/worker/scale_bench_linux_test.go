package worker_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/ring"
)

// BenchmarkIdleWorkers measures what idle workers cost themselves and a Redis server: real workers with a
// store handle each, and a membership in memory. Figures are per worker and second; what the server
// costs without workers is not in them.
func BenchmarkIdleWorkers(b *testing.B) {
	for _, n := range []int{3, 10, 30, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			const long = 20 * time.Second
			server := redistest.Start(b)
			alone := load(server, long/2)
			settings := ring.Settings{}.WithDefaults()
			c := site.NewWith(b, settings)
			workers := make([]*site.Worker, n)
			for i := range workers {
				handle := kit.Must(store.New(server.URL(), store.Config{Settings: settings, NewCluster: i == 0}))
				b.Cleanup(func() { handle.Close() })
				workers[i] = c.Start(func(cfg *worker.Config) { cfg.Store, cfg.NewCluster, cfg.Logger = handle, i == 0, nil })
			}
			kit.Eventually(b, "all partitions are served", func() bool {
				served := 0
				for _, w := range workers {
					if w.Serving() > 0 {
						served += w.Serving()
					}
				}
				return served == settings.Ring.Partitions && workers[n-1].Serving() > 0
			})
			<-time.After(settings.WithDefaults().TTL) // the moves are over
			for b.Loop() {
				before := kit.CPU(b)
				with := load(server, long)
				b.ReportMetric((kit.CPU(b)-before).Seconds()*1000/long.Seconds()/float64(n), "worker-ms/s")
				for unit, rate := range with {
					b.ReportMetric((rate-alone[unit])/float64(n), unit)
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// load is what a server does in a second, by unit, over a time. script-ms/s is the time within scripts, as INFO
// commandstats counts it; redis-ms/s is the processor time of the whole server.
func load(server *redistest.Server, long time.Duration) map[string]float64 {
	units := map[string]string{
		"total_commands_processed": "commands/s", "total_net_input_bytes": "B-in/s", "total_net_output_bytes": "B-out/s",
		"used_cpu_user": "redis-ms/s", "used_cpu_sys": "redis-ms/s",
	}
	read := func() map[string]float64 {
		rates := make(map[string]float64)
		for line := range strings.Lines(server.CLI("info", "all")) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if unit := units[name]; unit != "" {
				n, _ := strconv.ParseFloat(value, 64)
				rates[unit] += n
			}
			if strings.HasPrefix(name, "cmdstat_evalsha") {
				_, usec, _ := strings.Cut(value, "usec=")
				usec, _, _ = strings.Cut(usec, ",")
				n, _ := strconv.ParseFloat(usec, 64)
				rates["script-ms/s"] += n / 1000
			}
		}
		return rates
	}
	began, before := time.Now(), read()
	<-time.After(long)
	after, took := read(), time.Since(began)
	for unit := range after {
		after[unit] = (after[unit] - before[unit]) / took.Seconds()
	}
	after["redis-ms/s"] *= 1000
	return after
}
