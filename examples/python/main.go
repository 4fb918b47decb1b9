// Command python runs the app in app.py behind Keyway: two of it with a SQLite
// file in common, each behind a sidecar, and a router in front. Then buyers ask
// for more pieces than there are, all at the same time, and not one too many is
// sold.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/keyway-go/keyway/examples/internal/sidecars"
	"github.com/keyway-go/keyway/internal/cli"
)

const (
	skus   = 4
	pieces = 40 // of each SKU
	buyers = 60 // of each SKU
)

//go:embed app.py
var source []byte

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	config := sidecars.Config{Name: "python", App: source, File: "app.py", With: "python3", Env: "STOCK_DB=%s/stock.db", Key: "path:/stock/{key}", Stderr: stderr}
	return sidecars.Run(ctx, config, args, func(ctx context.Context, url string) error { return sell(ctx, url, stdout) })
}

func sell(ctx context.Context, url string, stdout io.Writer) error {
	var urls []string
	for i := range skus * buyers {
		urls = append(urls, fmt.Sprintf("%s/stock/sku-%d", url, i%skus))
	}
	answers, err := sidecars.Post(ctx, urls, map[string]int{"buy": 1})
	if err != nil {
		return err
	}
	count := make(map[int]int)
	for _, a := range answers {
		count[a.Status]++
	}
	sold, refused := count[http.StatusOK], count[http.StatusConflict]
	fmt.Fprintf(stdout, "%d buyers of %d pieces, at two apps in Python: %d bought one, %d were told that it is sold out; up to %d asked together\n",
		len(urls), skus*pieces, sold, refused, sidecars.Together(answers))
	if sold != skus*pieces || sold+refused != len(urls) {
		return fmt.Errorf("answers by status: %v", count)
	}
	return nil
}

func main() { os.Exit(cli.Main("python", run)) }
