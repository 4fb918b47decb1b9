package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/keyway-go/keyway/deploy/test/manifests"
	corev1 "k8s.io/api/core/v1"
)

const (
	podsNetwork = project + "-pods"
	wantOfPods  = 5000 // requests at least
)

// pods plays the kubelet.
type pods struct {
	out     io.Writer
	undo    *undoing
	secrets string // directory that stands for the Secret keyway
}

// pod is a pod that runs. Its containers share the network of one that only sleeps, as
// in Kubernetes.
type pod struct {
	name, ip string
	template *corev1.PodTemplateSpec
}

// field returns what a fieldRef stands for.
func (p *pod) field(path string) string {
	if name, ok := strings.CutPrefix(path, "metadata.annotations['"); ok {
		return p.template.Annotations[strings.TrimSuffix(name, "']")]
	}
	return map[string]string{"status.podIP": p.ip, "metadata.name": p.name}[path]
}

// container returns the name of one of its containers, or volumes, in the engine.
func (p *pod) container(name string) string { return p.name + "-" + name }

// containers returns those that run beside each other, the app first.
func (p *pod) containers() []corev1.Container {
	return slices.Concat(p.template.Spec.Containers, p.template.Spec.InitContainers)
}

// names returns their names in the engine.
func (p *pod) names() (names []string) {
	for _, c := range p.containers() {
		names = append(names, p.container(c.Name))
	}
	return names
}

// podsOf makes n pods of a Deployment or StatefulSet.
func podsOf(o *manifests.Objects, name string, n int) (all []*pod) {
	for i := range n {
		all = append(all, &pod{name: fmt.Sprintf("%s-%d", name, i), template: o.Pods()[name]})
	}
	return all
}

// play starts the pods of a kustomization with their environment, volumes, rights, order of start and probes: so many workers
// with the app, and fronts that clients reach, of that name and number. It replaces each of them under load.
func (k *pods) play(ctx context.Context, dir string, workers int, front string, fronts int) error {
	o, err := manifests.Render(dir)
	if err != nil {
		return err
	}
	if err := k.prepare(ctx); err != nil {
		return err
	}
	apps, doors := podsOf(o, "orders", workers), podsOf(o, front, fronts)
	if err := k.up(ctx, slices.Concat(apps, doors)...); err != nil {
		return err
	}
	return k.replaceEach(ctx, apps, doors)
}

// up starts pods, and waits until all are ready.
func (k *pods) up(ctx context.Context, all ...*pod) error {
	for _, do := range []func(context.Context, *pod) error{k.start, k.awaitReady} {
		for _, p := range all {
			if err := do(ctx, p); err != nil {
				return errors.Join(err, k.logs(ctx, p))
			}
		}
	}
	return nil
}

// prepare makes what is around the pods: a network, Redis and the Secret.
func (k *pods) prepare(ctx context.Context) error {
	if _, err := docker(ctx, "network", "create", podsNetwork); err != nil {
		return err
	}
	k.undo.docker("network", "rm", podsNetwork)
	redis := project + "-redis"
	k.undo.docker("rm", "--force", "--volumes", redis)
	if _, err := docker(ctx, "run", "--detach", "--name", redis, "--network", podsNetwork, "--network-alias", "redis", redisImage,
		"redis-server", "--protected-mode", "no", "--appendonly", "yes", "--maxmemory-policy", "noeviction"); err != nil {
		return err
	}
	var err error
	if k.secrets, err = os.MkdirTemp("", "keyway-secrets-"); err != nil {
		return err
	}
	k.undo.add(func(context.Context) error { return os.RemoveAll(k.secrets) })
	text := "gossip-key: " + strings.Repeat("5a", 32) + "\nredis: redis://redis:6379\nnew-cluster: true\n"
	if err := os.WriteFile(filepath.Join(k.secrets, "members.yaml"), []byte(text), 0o444); err != nil {
		return err
	}
	return os.Chmod(k.secrets, 0o755)
}

// start starts a pod's containers: those of initContainers one after the other, each
// once its startupProbe succeeds, then the rest.
func (k *pods) start(ctx context.Context, p *pod) error {
	k.undo.docker("rm", "--force", "--volumes", p.name)
	if _, err := docker(ctx, "run", "--detach", "--init", "--name", p.name, "--hostname", p.name, "--network", podsNetwork,
		"--network-alias", "keyway-gossip", pythonImage, "sleep", "infinity"); err != nil {
		return err
	}
	var err error
	if p.ip, err = docker(ctx, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", p.name); err != nil {
		return err
	}
	if err := k.makeVolumes(ctx, p); err != nil {
		return err
	}
	for i := range p.template.Spec.InitContainers {
		c := &p.template.Spec.InitContainers[i]
		if err := k.run(ctx, p, c); err != nil {
			return err
		}
		if err := await(ctx, time.Minute, func(ctx context.Context) error { return k.probe(ctx, p, c, c.StartupProbe) }); err != nil {
			return err
		}
	}
	for i := range p.template.Spec.Containers {
		if err := k.run(ctx, p, &p.template.Spec.Containers[i]); err != nil {
			return err
		}
	}
	return nil
}

// makeVolumes makes the pod's emptyDirs, for its group.
func (k *pods) makeVolumes(ctx context.Context, p *pod) error {
	for _, v := range p.template.Spec.Volumes {
		if v.EmptyDir == nil {
			continue
		}
		k.undo.docker("volume", "rm", "--force", p.container(v.Name))
		if _, err := docker(ctx, "volume", "create", "--opt", "type=tmpfs", "--opt", "device=tmpfs", "--opt", fmt.Sprintf("o=gid=%d,mode=2770", *p.template.Spec.SecurityContext.FSGroup), p.container(v.Name)); err != nil {
			return err
		}
	}
	return nil
}

// run starts a container of a pod.
func (k *pods) run(ctx context.Context, p *pod, c *corev1.Container) error {
	s := p.template.Spec.SecurityContext
	args := []string{
		"run", "--detach", "--name", p.container(c.Name), "--network", "container:" + p.name, "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
		"--read-only", "--user", fmt.Sprintf("%d:%d", *s.RunAsUser, *s.RunAsGroup),
	}
	for _, m := range c.VolumeMounts {
		source := p.container(m.Name)
		if strings.HasSuffix(m.Name, "secrets") {
			source = k.secrets
		}
		mount := source + ":" + m.MountPath
		if m.ReadOnly {
			mount += ":ro"
		}
		args = append(args, "--volume", mount)
	}
	for name, value := range k.environment(p, c) {
		args = append(args, "--env", name+"="+value)
	}
	k.undo.docker("rm", "--force", p.container(c.Name))
	_, err := docker(ctx, append(append(args, c.Image+":"+tag), c.Args...)...)
	return err
}

func (k *pods) environment(p *pod, c *corev1.Container) map[string]string {
	values := make(map[string]string)
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			e.Value = p.field(e.ValueFrom.FieldRef.FieldPath)
		}
		for name, value := range values {
			e.Value = strings.ReplaceAll(e.Value, "$("+name+")", value)
		}
		values[e.Name] = e.Value
	}
	return values
}

// probe carries out a probe, inside the pod.
func (k *pods) probe(ctx context.Context, p *pod, c *corev1.Container, probe *corev1.Probe) error {
	port := probe.HTTPGet.Port.IntVal
	for _, named := range c.Ports {
		if named.Name == probe.HTTPGet.Port.StrVal {
			port = named.ContainerPort
		}
	}
	ask := fmt.Sprintf("import urllib.request as u; u.urlopen('http://%s:%d%s', timeout=1)", p.ip, port, probe.HTTPGet.Path)
	_, err := docker(ctx, "exec", p.name, "python3", "-c", ask)
	return err
}

// awaitReady waits until all containers of a pod are ready.
func (k *pods) awaitReady(ctx context.Context, p *pod) error {
	return await(ctx, time.Minute, func(ctx context.Context) error {
		for _, c := range p.containers() {
			if c.ReadinessProbe == nil {
				continue
			}
			if err := k.probe(ctx, p, &c, c.ReadinessProbe); err != nil {
				return err
			}
		}
		return nil
	})
}

// stopTogether sends SIGTERM to all containers of a pod at once.
func (k *pods) stopTogether(ctx context.Context, p *pod) error {
	return k.end(ctx, p, p.names()...)
}

// stopInOrder does what the kubelet does: each container's preStop and then SIGTERM,
// and what is among initContainers last.
func (k *pods) stopInOrder(ctx context.Context, p *pod) error {
	for _, c := range p.template.Spec.Containers {
		if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
			if _, err := docker(ctx, append([]string{"exec", p.container(c.Name)}, c.Lifecycle.PreStop.Exec.Command...)...); err != nil {
				return fmt.Errorf("preStop: %w", err)
			}
		}
		if err := k.end(ctx, p, p.container(c.Name)); err != nil {
			return err
		}
	}
	for _, c := range p.template.Spec.InitContainers {
		if err := k.end(ctx, p, p.container(c.Name)); err != nil {
			return err
		}
	}
	return nil
}

// end sends SIGTERM to containers and waits until they have ended with 0.
func (k *pods) end(ctx context.Context, p *pod, names ...string) error {
	if _, err := docker(ctx, append([]string{"kill", "--signal", "TERM"}, names...)...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(*p.template.Spec.TerminationGracePeriodSeconds)*time.Second)
	defer cancel()
	for _, name := range names {
		if code, err := docker(ctx, "wait", name); err != nil || code != "0" {
			return fmt.Errorf("%s has ended with %s, within its grace period of %d s: %w", name, code, *p.template.Spec.TerminationGracePeriodSeconds, err)
		}
	}
	return nil
}

// remove takes an ended pod away.
func (k *pods) remove(ctx context.Context, p *pod) error {
	if _, err := docker(ctx, append([]string{"rm", "--force", p.name}, p.names()...)...); err != nil {
		return err
	}
	for _, v := range p.template.Spec.Volumes {
		if v.EmptyDir != nil {
			if _, err := docker(ctx, "volume", "rm", p.container(v.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// replaceEach replaces each pod by a new one of its name, under load.
func (k *pods) replaceEach(ctx context.Context, workers, fronts []*pod) error {
	var targets []string
	for _, p := range fronts {
		targets = append(targets, "http://"+p.name+":8080")
	}
	l, err := startLoad(ctx, project+"-client", podsNetwork, loadRate, targets...)
	if err != nil {
		return err
	}
	replace := func(how string, p *pod, stop func(context.Context, *pod) error) error {
		if err := errors.Join(stop(ctx, p), k.remove(ctx, p)); err != nil {
			return errors.Join(err, k.logs(ctx, p))
		}
		if err := k.up(ctx, p); err != nil {
			return err
		}
		if err := l.awaitAnswers(ctx, settleAnswers); err != nil {
			return err
		}
		part := l.result()
		fmt.Fprintf(k.out, "  %s, %s: %s\n", p.name, how, &part)
		return nil
	}
	for _, p := range workers {
		if err := replace("app and sidecar get SIGTERM together", p, k.stopTogether); err != nil {
			return err
		}
		if err := replace("preStop, SIGTERM to the app, then to the sidecar", p, k.stopInOrder); err != nil {
			return err
		}
	}
	for _, p := range fronts {
		if err := replace("SIGTERM", p, k.stopTogether); err != nil {
			return err
		}
	}
	for n := l.answers(); n < wantOfPods; n = l.answers() {
		if err := l.awaitAnswers(ctx, wantOfPods-n); err != nil {
			return err
		}
	}
	total, err := l.stop(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(k.out, "  in all: %s\n", &total)
	if total.failed() > 0 {
		return errors.New("requests have failed")
	}
	return nil
}

// logs returns the latest lines of a pod's containers as an error.
func (k *pods) logs(ctx context.Context, p *pod) error {
	var all []error
	for _, name := range p.names() {
		text, err := command(ctx, "docker", "logs", "--tail", "40", name).CombinedOutput()
		all = append(all, err, fmt.Errorf("%s:\n%s", name, text))
	}
	return errors.Join(all...)
}
