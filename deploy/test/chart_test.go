package test

import (
	"strings"
	"testing"

	"github.com/keyway-go/keyway/deploy/test/manifests"
	"sigs.k8s.io/yaml"
)

// example are values of the app of deploy/kubernetes.
const example = `
app:
  image: keyway/example-app
  args: ["127.0.0.1:3000"]
  env: [{name: APP_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
  health: /healthz
  preStop: [python3, -c, 'import urllib.request as u; u.urlopen(u.Request("http://127.0.0.1:9090/drain", method="POST"), timeout=30)']
  resources: {requests: {cpu: 250m, memory: 128Mi}, limits: {memory: 256Mi}}
`

const program = `
layout: embedded
app: {image: your-program, resources: {requests: {cpu: 250m, memory: 256Mi}, limits: {memory: 1Gi}}}
`

// charts are values whose objects no kustomization has.
var charts = map[string]string{
	"doors":         example + "layout: door\n",
	"doors of etcd": example + "layout: door\nstore: etcd://192.0.2.2:2379\nclients: {tlsSecret: site, serviceType: LoadBalancer, settings: {key: 'path:/orders/{order}'}}\npeerTLSSecret: keyway-peer\n",
	"TLS":           example + "store: redis://192.0.2.2\nclients: {tlsSecret: site}\nsidecar: {settings: {queue-per-key: '100'}}\npod: {priorityClassName: high}\n",
	"embedded":      program + "store: redis://192.0.2.2\npeerTLSSecret: keyway-peer\nautoscaling: {enabled: true}\n",
}

func renderChart(t *testing.T, values string) *manifests.Objects {
	t.Helper()
	objects, err := manifests.RenderChart("../helm", values)
	if err != nil {
		t.Fatalf("%v\nof the values%s", err, values)
	}
	return objects
}

// The chart makes the same objects as each kustomization does.
func TestChartIsTheKustomizations(t *testing.T) {
	kustomizations := renderings(t)
	for name, values := range map[string]string{
		"sidecar":                  example,
		"embedded":                 program,
		"sidecar with peer-tls":    example + "peerTLSSecret: keyway-peer\n",
		"sidecar with autoscaling": example + "autoscaling: {enabled: true}\n",
	} {
		want, got := lines(t, kustomizations[name]), lines(t, renderChart(t, values))
		for i := range max(len(want), len(got)) {
			if i >= len(want) || i >= len(got) || want[i] != got[i] {
				t.Errorf("%s: line %d of the chart's objects differs from the kustomization's:\n%s\n\n%s", name, i, strings.Join(got[max(0, i-20):min(len(got), i+3)], "\n"), strings.Join(want[max(0, i-20):min(len(want), i+3)], "\n"))
				break
			}
		}
	}
}

func lines(t *testing.T, o *manifests.Objects) []string {
	t.Helper()
	text, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

// Values that are misspelled, or that contradict each other or the chart, are refused by name.
func TestChartRefusesBadValues(t *testing.T) {
	for values, want := range map[string]string{
		"":                            "at '/app/image'",
		"replica: 3":                  "'replica'",
		"layout: doors":               "at '/layout'",
		"store: http://redis":         "at '/store'",
		"app: {replicas: 0}":          "at '/app/replicas'",
		"app: {health: healthz}":      "at '/app/health'",
		"settings: {--key: x}":        "'--key'",
		"settings: {max-held: 10000}": "at '/settings/max-held': got number, want boolean or string",
		"settings: {redis: 'redis://x'}\n" + example:                           "the chart itself sets redis",
		"clients: {settings: {tls-cert: x}}\n" + example:                       "the chart itself sets tls-cert",
		"autoscaling: {enabled: true, min: 13}\n" + example:                    "min is 13, and max is 12",
		"layout: embedded" + example:                                           "app.preStop and app.health are for an app with a sidecar",
		"layout: embedded\nsidecar: {settings: {queue: '1'}}\napp: {image: x}": "sidecar.settings are for an app with a sidecar",
		"pod: {securityContext: {}}\n" + example:                               "'securityContext'",
	} {
		if _, err := manifests.RenderChart("../helm", values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", values, err, want)
		}
	}
}
