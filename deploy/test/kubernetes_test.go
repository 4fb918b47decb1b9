package test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/deploy/test/manifests"
	"github.com/keyway-go/keyway/gateway/admin"
	"github.com/keyway-go/keyway/internal/test/certs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const partOf = "app.kubernetes.io/part-of"

const peerTLS = "peer-tls" // a component

// renderings are the kustomizations, with a component and without, and charts.
func renderings(t *testing.T) map[string]*manifests.Objects {
	t.Helper()
	dirs := map[string]string{"sidecar": "../kubernetes/sidecar", "embedded": "../kubernetes/embedded", "door": "../kubernetes/door"}
	base, err := filepath.Abs("../kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	components, err := filepath.Glob("../kubernetes/components/*")
	if err != nil || len(components) == 0 {
		t.Fatal("no components", err)
	}
	with := [][2]string{{"door", peerTLS}}
	for _, component := range components {
		if name := filepath.Base(component); name != "door" { // has a kustomization
			with = append(with, [2]string{"sidecar", name})
		}
	}
	for _, w := range with {
		dir := t.TempDir()
		text := fmt.Sprintf("resources: [%s]\ncomponents: [%s]\n", relative(t, dir, base, w[0]), relative(t, dir, base, "components", w[1]))
		if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		dirs[w[0]+" with "+w[1]] = dir
	}
	all := make(map[string]*manifests.Objects)
	for name, dir := range dirs {
		if all[name], err = manifests.Render(dir); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for name, values := range charts {
		all["chart: "+name] = renderChart(t, values)
	}
	return all
}

func relative(t *testing.T, from string, to ...string) string {
	t.Helper()
	path, err := filepath.Rel(from, filepath.Join(to...))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// each calls check for every pod of every kustomization.
func each(t *testing.T, check func(t *testing.T, pod *corev1.PodTemplateSpec)) {
	t.Helper()
	for kustomization, objects := range renderings(t) {
		for name, pod := range objects.Pods() {
			t.Run(kustomization+"/"+name, func(t *testing.T) { check(t, pod) })
		}
	}
}

// containers are all that run beside each other in a pod.
func containers(pod *corev1.PodTemplateSpec) []corev1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

// env returns a container's variables as they are in a pod with an address that no
// machine has (RFC 5737).
func env(c *corev1.Container) map[string]string {
	values := make(map[string]string)
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			e.Value = map[string]string{
				"status.podIP": "192.0.2.1", "metadata.name": "orders-0",
				"metadata.annotations['keyway/upstream']": "http://127.0.0.1:3000", "metadata.annotations['keyway/health']": "/healthz",
			}[e.ValueFrom.FieldRef.FieldPath]
		}
		for name, value := range values {
			e.Value = strings.ReplaceAll(e.Value, "$("+name+")", value)
		}
		values[e.Name] = e.Value
	}
	return values
}

// The programs take what the manifests say to them: nothing is wrong but the
// address.
func TestProgramsTakeTheEnvironmentOfTheirContainers(t *testing.T) {
	dir := buildPrograms(t)
	secrets := makeSecrets(t)
	started := 0
	for kustomization, objects := range renderings(t) {
		for name, pod := range objects.Pods() {
			for _, c := range containers(pod) {
				program := strings.TrimPrefix(c.Image, "keyway/")
				if program != "router" && program != "worker" {
					continue
				}
				started++
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				cmd := exec.CommandContext(ctx, filepath.Join(dir, program), c.Args...)
				cmd.Env = []string{"KEYWAY_STORE=redis://192.0.2.2"} // unless the container has another one
				for key, value := range env(&c) {
					cmd.Env = append(cmd.Env, key+"="+strings.ReplaceAll(value, "/run/secrets/", secrets))
				}
				out, err := cmd.CombinedOutput()
				cancel()
				exit, ok := errors.AsType[*exec.ExitError](err)
				if !ok || exit.ExitCode() != 1 || !strings.Contains(string(out), "192.0.2.1") {
					t.Errorf("%s of %s of %s: %v, want exit code 1 for the address\n%s", c.Name, name, kustomization, err, out)
				}
			}
		}
	}
	if started == 0 {
		t.Error("no container with a program of Keyway")
	}
}

// makeSecrets makes what pods have at /run/secrets, and returns where, with a slash.
func makeSecrets(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ca, err := certs.NewCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tls", "peer"} {
		cert, key, err := ca.Issue(dir, name, nil)
		if err = errors.Join(err, os.Mkdir(filepath.Join(dir, name), 0o700), os.Rename(cert, filepath.Join(dir, name, "tls.crt")),
			os.Rename(key, filepath.Join(dir, name, "tls.key")), os.Link(ca.File, filepath.Join(dir, name, "ca.crt"))); err != nil {
			t.Fatal(err)
		}
	}
	members := "gossip-key: " + strings.Repeat("ab", 32) + "\n"
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "keyway"), 0o700), os.WriteFile(filepath.Join(dir, "keyway", "members.yaml"), []byte(members), 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir + "/"
}

// With TLS between members, all of them have it.
func TestPeerTLSReachesAllMembers(t *testing.T) {
	members := 0
	for name, objects := range renderings(t) {
		chart, _ := strings.CutPrefix(name, "chart: ")
		if !strings.HasSuffix(name, "with "+peerTLS) && (chart == name || !strings.Contains(charts[chart], "peerTLSSecret")) {
			continue
		}
		for pod, spec := range objects.Pods() {
			for _, c := range containers(spec) {
				if env(&c)["KEYWAY_GOSSIP"]+env(&c)["GOSSIP"] == "" {
					continue
				}
				members++
				for _, variable := range []string{"PEER_CERT", "PEER_KEY", "PEER_CA"} {
					if env(&c)["KEYWAY_"+variable]+env(&c)[variable] == "" {
						t.Errorf("%s: %s of %s has no %s", name, c.Name, pod, variable)
					}
				}
			}
		}
	}
	if members < 6 {
		t.Errorf("%d members, want at least six", members)
	}
}

// A pod has the time for its preStop and for its drain, one after the other. What its members take at the end of their
// notice has the usual time, too.
func TestPodsHaveTheTimeToLeave(t *testing.T) {
	each(t, func(t *testing.T, pod *corev1.PodTemplateSpec) {
		need := drainTimeout
		for _, c := range containers(pod) {
			if env(&c)["KEYWAY_DRAIN_TIMEOUT"] == "" {
				continue
			}
			need = duration(t, env(&c)["KEYWAY_DRAIN_TIMEOUT"])
			if said := env(&c)["KEYWAY_DRAIN_NOTICE"]; said != "" && need-duration(t, said) < drainTimeout {
				t.Errorf("%s has %s to drain, and %s of it are its notice", c.Name, need, said)
			}
		}
		for _, c := range containers(pod) {
			if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
				need *= 2 // it drains too
			}
		}
		if pod.Spec.TerminationGracePeriodSeconds == nil || time.Duration(*pod.Spec.TerminationGracePeriodSeconds)*time.Second <= need {
			t.Errorf("terminationGracePeriodSeconds is not more than %s", need)
		}
	})
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// What is probed is a path of the admin address, at a port that the container has.
func TestProbesAskForWhatThereIs(t *testing.T) {
	each(t, func(t *testing.T, pod *corev1.PodTemplateSpec) {
		probed := 0
		for _, c := range containers(pod) {
			for what, probe := range map[string]*corev1.Probe{"startupProbe": c.StartupProbe, "readinessProbe": c.ReadinessProbe, "livenessProbe": c.LivenessProbe} {
				if probe == nil {
					continue
				}
				probed++
				if port := portOf(&c, probe.HTTPGet.Port); !strings.HasSuffix(adminOf(&c), fmt.Sprint(":", port)) {
					t.Errorf("%s of %s asks port %d, and the admin address is %s", what, c.Name, port, adminOf(&c))
				}
				answer := httptest.NewRecorder()
				admin.New(admin.Config{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, probe.HTTPGet.Path, nil))
				if answer.Code != http.StatusOK {
					t.Errorf("%s of %s asks for %s, which is %d", what, c.Name, probe.HTTPGet.Path, answer.Code)
				}
			}
		}
		if probed < 2 {
			t.Errorf("%d probes, want readiness and liveness", probed)
		}
	})
}

// adminOf returns the admin address of a container.
func adminOf(c *corev1.Container) string { return env(c)["KEYWAY_ADMIN"] + env(c)["ADMIN"] }

// portOf returns the number of a container's port, 0 if it has none of that name.
func portOf(c *corev1.Container, port intstr.IntOrString) int32 {
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			return p.ContainerPort
		}
	}
	return 0
}

// The ports that containers name are those at which the programs listen.
func TestPortsAreThoseOfTheFlags(t *testing.T) {
	listening := map[string][]string{
		"http": {"KEYWAY_LISTEN", "KEYWAY_PUBLIC"}, "door": {"KEYWAY_PUBLIC"}, "link": {"KEYWAY_LISTEN", "LISTEN"}, "admin": {"KEYWAY_ADMIN", "ADMIN"},
		"gossip": {"KEYWAY_GOSSIP", "GOSSIP"}, "gossip-udp": {"KEYWAY_GOSSIP", "GOSSIP"},
	}
	each(t, func(t *testing.T, pod *corev1.PodTemplateSpec) {
		for _, c := range containers(pod) {
			values := env(&c)
			for _, p := range c.Ports {
				if !slices.ContainsFunc(listening[p.Name], func(name string) bool { return strings.HasSuffix(values[name], fmt.Sprint(":", p.ContainerPort)) }) {
					t.Errorf("nothing in %s listens at port %s, %d", c.Name, p.Name, p.ContainerPort)
				}
			}
			if c.Name == "app" && !strings.HasPrefix(c.Args[0], "127.0.0.1:") {
				t.Errorf("the app listens at %s, where others reach it past its sidecar", c.Args[0])
			}
		}
		if port, said := pod.Annotations["prometheus.io/port"], adminOf(&containers(pod)[0]); !strings.HasSuffix(said, ":"+port) {
			t.Errorf("Prometheus is sent to port %s, and the admin address is %s", port, said)
		}
	})
}

// Services, budgets and policies are for pods that there are, and the seeds are a
// Service that knows members before they are ready.
func TestSelectorsFindPods(t *testing.T) {
	for kustomization, objects := range renderings(t) {
		pods := objects.Pods()
		found := func(what string, selector map[string]string) (names []string) {
			for name, pod := range pods {
				if contains(pod.Labels, selector) {
					names = append(names, name)
				}
			}
			if len(names) == 0 {
				t.Errorf("%s: %s finds no pod", kustomization, what)
			}
			return names
		}
		for name, s := range objects.Services {
			if members := found("Service "+name, s.Spec.Selector); name == "keyway-gossip" && (len(members) != len(pods) || !s.Spec.PublishNotReadyAddresses || s.Spec.ClusterIP != corev1.ClusterIPNone) {
				t.Errorf("%s: keyway-gossip finds %v of %v, or only when they are ready", kustomization, members, slices.Collect(maps.Keys(pods)))
			}
		}
		budgets := make(map[string]bool)
		for name, b := range objects.Budgets {
			for _, pod := range found("PodDisruptionBudget "+name, b.Spec.Selector.MatchLabels) {
				budgets[pod] = true
			}
		}
		for name, p := range objects.Policies {
			found("NetworkPolicy "+name, p.Spec.PodSelector.MatchLabels)
		}
		for name, pod := range pods {
			if !budgets[name] || pod.Labels[partOf] != "keyway" {
				t.Errorf("%s: %s has no PodDisruptionBudget, or is no part of keyway", kustomization, name)
			}
			for _, c := range containers(pod) {
				for _, seed := range []string{env(&c)["KEYWAY_JOIN"], env(&c)["JOIN"]} {
					if seed != "" && seed != "keyway-gossip:7946" {
						t.Errorf("%s: %s joins %s", kustomization, c.Name, seed)
					}
				}
			}
		}
		for name, s := range objects.StatefulSets {
			if objects.Services[s.Spec.ServiceName] == nil {
				t.Errorf("%s: StatefulSet %s has no Service %s", kustomization, name, s.Spec.ServiceName)
			}
		}
		for name, h := range objects.Autoscalers {
			if objects.StatefulSets[h.Spec.ScaleTargetRef.Name] == nil {
				t.Errorf("%s: HorizontalPodAutoscaler %s scales nothing that is there", kustomization, name)
			}
		}
	}
}

func contains(labels, selector map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return len(selector) > 0
}

// Each container is confined, and finds the volumes that it mounts.
func TestContainersAreConfined(t *testing.T) {
	each(t, func(t *testing.T, pod *corev1.PodTemplateSpec) {
		volumes := make(map[string]bool)
		for _, v := range pod.Spec.Volumes {
			volumes[v.Name] = true
		}
		if s := pod.Spec.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil {
			t.Error("it may run as root, or without seccomp")
		}
		for _, c := range containers(pod) {
			s := c.SecurityContext
			if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil {
				t.Errorf("%s has rights that it does not need", c.Name)
			}
			if c.Resources.Limits.Cpu().Sign() != 0 {
				t.Errorf("%s may be stopped when it needs the CPU to keep its session", c.Name)
			}
			for _, m := range c.VolumeMounts {
				if !volumes[m.Name] {
					t.Errorf("%s mounts %s, which is not there", c.Name, m.Name)
				}
			}
		}
	})
}
