// Command play tries what deploy/ describes on a Docker engine, as far as a
// machine allows, under load: it builds the images, starts compose.yaml, restarts
// each service, and plays how Kubernetes starts and stops pods with the
// containers of its manifests.
//
//	go run ./play
//
// Images that no registry gives are replaced by ones of Debian's packages. It takes
// away all that it made but for the image that these are made of, prints what it
// saw, and exits with 1 if a request has failed that should not have.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	imagesTimeout = 15 * time.Minute
	timeout       = 20 * time.Minute // of the rest
	loadRate      = 150              // requests a second
	loadClients   = 16
	settleAnswers = 3 * loadRate // after each change
)

// steps are what is tried.
var steps = []string{"compose", "doors", "pods", "door-pods"}

func main() {
	only := flag.String("only", "", "`name` of the one thing to try: "+strings.Join(steps, ", "))
	flag.Parse()
	if flag.NArg() > 0 || *only != "" && !slices.Contains(steps, *only) {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := play(ctx, *only, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "play:", err)
		os.Exit(1)
	}
}

func play(ctx context.Context, only string, out io.Writer) error {
	root, err := repository(ctx)
	if err != nil {
		return err
	}
	began, undo := time.Now(), new(undoing)
	defer undo.run(ctx, out)
	fmt.Fprintln(out, "images:")
	if err := (&images{root, out, undo}).prepare(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, step := range steps {
		if only != "" && only != step {
			continue
		}
		fmt.Fprintf(out, "%s (after %.0f s):\n", step, time.Since(began).Seconds())
		undo := new(undoing) // the next one uses the same names
		err := try(ctx, step, filepath.Join(root, "deploy"), out, undo)
		undo.run(ctx, out)
		if err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	fmt.Fprintln(out, "skipped: Grafana, of which there is no stand-in")
	return nil
}

// try tries a step with the files of a directory. The services of compose.yaml, alone or with compose.door.yaml, run without
// Grafana and are restarted under load. The pods of Kubernetes, with routers or as doors, are replaced under load.
func try(ctx context.Context, step, dir string, out io.Writer, undo *undoing) error {
	switch step {
	case "compose", "doors":
		return (&stack{dir: dir, out: out, doors: step == "doors"}).play(ctx, undo)
	case "pods":
		return (&pods{out: out, undo: undo}).play(ctx, filepath.Join(dir, "kubernetes", "sidecar"), 3, "keyway-router", 2)
	}
	return (&pods{out: out, undo: undo}).play(ctx, filepath.Join(dir, "kubernetes", "door"), 0, "orders", 3)
}

// repository returns the directory that has the main module.
func repository(ctx context.Context) (string, error) {
	file, err := run(exec.CommandContext(ctx, "go", "env", "GOMOD"))
	if err != nil {
		return "", err
	}
	at := strings.TrimSuffix(filepath.Dir(file), filepath.Join("deploy", "test"))
	if at == filepath.Dir(file) {
		return "", fmt.Errorf("%s is not the module deploy/test: run it there", file)
	}
	return filepath.Clean(at), nil
}
