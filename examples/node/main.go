// Command node runs the app in app.mjs behind Keyway: two of it with a directory
// in common, each behind a sidecar, and a router in front. Then callers ask for
// seats of the same shows, all at the same time, and no seat is given twice.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/keyway-go/keyway/examples/internal/sidecars"
	"github.com/keyway-go/keyway/internal/cli"
)

const (
	shows = 4
	seats = 50 // of each show, and as many callers
)

//go:embed app.mjs
var source []byte

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	config := sidecars.Config{Name: "node", App: source, File: "app.mjs", With: "node", Env: "SHOWS_DIR=%s", Key: "path:/shows/{key}/", Stderr: stderr}
	return sidecars.Run(ctx, config, args, func(ctx context.Context, url string) error { return reserve(ctx, url, stdout) })
}

func reserve(ctx context.Context, url string, stdout io.Writer) error {
	var urls []string
	for i := range shows * seats {
		urls = append(urls, fmt.Sprintf("%s/shows/show-%d/seats", url, i%shows))
	}
	answers, err := sidecars.Post(ctx, urls, nil)
	if err != nil {
		return err
	}
	type place struct{ show, seat int }
	given := make(map[place]bool)
	for i, a := range answers {
		var answer struct{ Seat int }
		if err := json.Unmarshal(a.Body, &answer); err != nil || answer.Seat < 1 || answer.Seat > seats {
			return fmt.Errorf("status %d, answer %q (%v)", a.Status, a.Body, err)
		}
		given[place{i % shows, answer.Seat}] = true
	}
	fmt.Fprintf(stdout, "%d callers, at two apps in Node, got %d different seats; up to %d asked together\n", len(urls), len(given), sidecars.Together(answers))
	if len(given) != len(urls) {
		return fmt.Errorf("%d seats were given twice", len(urls)-len(given))
	}
	return nil
}

func main() { os.Exit(cli.Main("node", run)) }
