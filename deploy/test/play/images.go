package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Images that the deployments build on, as they name them.
const (
	golangImage     = "golang:1.26-bookworm"
	pythonImage     = "python:3.13-slim"
	redisImage      = "redis:7.4"
	prometheusImage = "prom/prometheus:v3.5.0"
	nginxImage      = "nginx:1.28"
)

// Images of the repository, under a tag that nobody else uses.
const (
	tag         = "deploy-test"
	buildImage  = "keyway/build:" + tag // the first stage of the next two
	routerImage = "keyway/router:" + tag
	workerImage = "keyway/worker:" + tag
	appImage    = "keyway/example-app:" + tag
	clientImage = "keyway/test-client:" + tag
)

// The images that stay in the engine, so that the next run takes less time.
const (
	debianImage = "keyway-test/debian:2" // with packages; another number for others
	goToolImage = "keyway-test/go:"      // and Go's version and a digest of go.sum
)

// packages are what stand-ins need of Debian, beside what every Debian has.
const packages = "ca-certificates,redis-server,prometheus,python3,nginx"

// images gets the images that deployments need: from their registry, or
// stand-ins of Debian's packages under the same names.
type images struct {
	root string // of the repository
	out  io.Writer
	undo *undoing
}

// prepare gets all images that a registry would have, and builds the
// repository's.
func (im *images) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, imagesTimeout)
	defer cancel()
	standIns := map[string]func(context.Context, string) error{
		golangImage:     im.golang,
		pythonImage:     im.of(`CMD ["python3"]`),
		redisImage:      im.of("RUN mkdir /data && chown redis:redis /data\nWORKDIR /data\nUSER redis"),
		prometheusImage: im.of("RUN mkdir /prometheus && chown nobody:nogroup /prometheus\nUSER nobody\nENTRYPOINT [\"prometheus\"]"),
		nginxImage:      im.of("RUN rm /etc/nginx/sites-enabled/default\nSTOPSIGNAL SIGQUIT\nCMD [\"nginx\", \"-g\", \"daemon off;\"]"),
	}
	for _, name := range slices.Sorted(maps.Keys(standIns)) {
		if err := im.get(ctx, name, standIns[name]); err != nil {
			return err
		}
	}
	return im.own(ctx)
}

// get takes an image that is there or that a registry has, or else a stand-in.
func (im *images) get(ctx context.Context, name string, standIn func(context.Context, string) error) error {
	if _, err := docker(ctx, "image", "inspect", name); err == nil {
		return nil
	}
	im.undo.docker("image", "rm", name)
	if _, err := docker(ctx, "pull", "-q", name); err == nil {
		fmt.Fprintf(im.out, "  %s: pulled\n", name)
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	fmt.Fprintf(im.out, "  %s: cannot be pulled, so a stand-in\n", name)
	return standIn(ctx, name)
}

// debian makes the image that stand-ins build on.
func (im *images) debian(ctx context.Context) error {
	if _, err := docker(ctx, "image", "inspect", debianImage); err == nil {
		return nil
	}
	fmt.Fprintln(im.out, "  a Debian with", packages, "(1 min)")
	dir, err := os.MkdirTemp("", "keyway-debian-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if _, err := run(command(ctx, "debootstrap", "--variant=minbase", "--include="+packages, "bookworm", dir)); err != nil {
		return err
	}
	pack := command(ctx, "tar", "-C", dir, "-c", "--exclude=./var/cache/apt/archives/*", "--exclude=./var/lib/apt/lists/*", "--exclude=./usr/share/doc/*", "--exclude=./usr/share/locale/*", ".")
	load := command(ctx, "docker", "import", "-", debianImage)
	if load.Stdin, err = pack.StdoutPipe(); err != nil {
		return err
	}
	if err := pack.Start(); err != nil {
		return err
	}
	_, err = run(load)
	if packed := pack.Wait(); err == nil && packed != nil {
		err = fmt.Errorf("tar: %w", packed)
	}
	return err
}

// of returns a stand-in that is Debian with these lines of a Dockerfile.
func (im *images) of(lines string) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		if err := im.debian(ctx); err != nil {
			return err
		}
		return im.build(ctx, "FROM "+debianImage+"\n"+lines, "-", name)
	}
}

// build builds an image of a Dockerfile's text, with a directory as its context, or none if that is "-".
func (im *images) build(ctx context.Context, dockerfile, dir, image string) error {
	args := []string{"build", "-q", "-t", image}
	if dir != "-" {
		args = append(args, "-f", "-")
	}
	cmd := command(ctx, "docker", append(args, dir)...)
	cmd.Stdin = strings.NewReader(dockerfile)
	_, err := run(cmd)
	return err
}

// golang makes a stand-in of this machine's Go. It has the modules that the programs
// need, compiled, so that go mod download and go build in it need no network and less
// time.
func (im *images) golang(ctx context.Context, name string) error {
	sums, err := os.ReadFile(filepath.Join(im.root, "go.sum"))
	if err != nil {
		return err
	}
	kept := fmt.Sprintf("%s%s-%.6x", goToolImage, strings.TrimPrefix(runtime.Version(), "go"), sha256.Sum256(sums))
	if _, err := docker(ctx, "image", "inspect", kept); err != nil {
		if err := im.golangFor(ctx, kept); err != nil {
			return err
		}
	}
	_, err = docker(ctx, "tag", kept, name)
	return err
}

func (im *images) golangFor(ctx context.Context, kept string) error {
	if err := im.debian(ctx); err != nil {
		return err
	}
	fmt.Fprintln(im.out, "  Go and the modules (2 min)")
	root, err := run(exec.CommandContext(ctx, "go", "env", "GOROOT"))
	if err != nil {
		return err
	}
	tool := goToolImage + "tool"
	if err := im.build(ctx, "FROM "+debianImage+"\nCOPY . /usr/local/go\nENV PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin GOTOOLCHAIN=local GOSUMDB=off GOFLAGS=-modcacherw", root, tool); err != nil {
		return err
	}
	defer docker(context.WithoutCancel(ctx), "image", "rm", tool) // kept needs its layers and not its name
	dir, err := im.modules(ctx)
	defer os.RemoveAll(dir)
	if err != nil {
		return err
	}
	needed, err := run(exec.CommandContext(ctx, "go", "-C", im.root, "list", "-tags", "grpcnotrace", "-deps", "-f", "{{if not (and .Module .Module.Main)}}{{.ImportPath}}{{end}}", "./cmd/router", "./cmd/worker"))
	if err != nil {
		return err
	}
	text := "FROM " + tool + "\nWORKDIR /modules\nCOPY . .\nRUN GOPROXY=file:///modules/cache/download go mod download && CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -ldflags=-s " + strings.Join(strings.Fields(needed), " ") +
		" && rm -r cache"
	return im.build(ctx, text, dir, kept)
}

// modules returns a directory with go.mod and go.sum of the main module and, in
// cache/download, the modules that they name.
func (im *images) modules(ctx context.Context) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "keyway-modules-"); err != nil {
		return "", err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(im.root, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
		}
		if err != nil {
			return dir, err
		}
	}
	here, err := run(exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY"))
	if err != nil {
		return dir, err
	}
	cache, proxy, _ := strings.Cut(here, "\n")
	cmd := command(ctx, "go", "-C", im.root, "mod", "download")
	cmd.Env = append(os.Environ(), "GOMODCACHE="+dir, "GOFLAGS=-modcacherw", "GOPROXY=file://"+cache+"/cache/download,"+proxy)
	_, err = run(cmd)
	return dir, err
}

// own builds the repository's images.
func (im *images) own(ctx context.Context) error {
	fmt.Fprintln(im.out, "  Keyway's own")
	for _, name := range []string{buildImage, routerImage, workerImage, appImage, clientImage} {
		im.undo.docker("image", "rm", name)
	}
	dockerfile := filepath.Join(im.root, "deploy", "Dockerfile")
	for _, target := range []struct{ name, image string }{{"build", buildImage}, {"router", routerImage}, {"worker", workerImage}} {
		if _, err := docker(ctx, "build", "-q", "-f", dockerfile, "--target", target.name, "-t", target.image, im.root); err != nil {
			return err
		}
	}
	if _, err := docker(ctx, "build", "-q", "-t", appImage, filepath.Join(im.root, "deploy", "app")); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "keyway-client-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	compile := command(ctx, "go", "-C", filepath.Join(im.root, "deploy", "test"), "build", "-trimpath", "-o", filepath.Join(dir, "client"), "./client")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if _, err := run(compile); err != nil {
		return err
	}
	return im.build(ctx, "FROM scratch\nCOPY client /client\nENTRYPOINT [\"/client\"]", dir, clientImage)
}
