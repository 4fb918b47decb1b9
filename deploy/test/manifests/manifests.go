// Package manifests renders deploy/kubernetes and deploy/helm, and reads what comes
// out by the types of Kubernetes' API.
package manifests

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Objects are the objects of a kustomization or a chart, by name.
type Objects struct {
	Deployments  map[string]*appsv1.Deployment
	StatefulSets map[string]*appsv1.StatefulSet
	Services     map[string]*corev1.Service
	Policies     map[string]*networkingv1.NetworkPolicy
	Budgets      map[string]*policyv1.PodDisruptionBudget
	Autoscalers  map[string]*autoscalingv2.HorizontalPodAutoscaler
}

// Pods returns the pods that Deployments and StatefulSets make, by their names.
func (o *Objects) Pods() map[string]*corev1.PodTemplateSpec {
	pods := make(map[string]*corev1.PodTemplateSpec)
	for name, d := range o.Deployments {
		pods[name] = &d.Spec.Template
	}
	for name, s := range o.StatefulSets {
		pods[name] = &s.Spec.Template
	}
	return pods
}

// Render builds the kustomization in a directory. An object with a field that its
// type does not have, or of a type that is not among those of Objects, is an error.
func Render(dir string) (*Objects, error) {
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	text, err := rendered.AsYaml()
	if err != nil {
		return nil, err
	}
	return read(string(text))
}

// RenderChart renders the Helm chart in a directory as the release keyway, with
// values in YAML over those of the chart. Its errors are those of Helm and of Render.
func RenderChart(dir, values string) (*Objects, error) {
	chart, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: "keyway"}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return nil, err
	}
	return read(slices.Collect(maps.Values(files))...)
}

// read reads the objects of files in YAML.
func read(files ...string) (*Objects, error) {
	o := &Objects{
		Deployments:  make(map[string]*appsv1.Deployment),
		StatefulSets: make(map[string]*appsv1.StatefulSet),
		Services:     make(map[string]*corev1.Service),
		Policies:     make(map[string]*networkingv1.NetworkPolicy),
		Budgets:      make(map[string]*policyv1.PodDisruptionBudget),
		Autoscalers:  make(map[string]*autoscalingv2.HorizontalPodAutoscaler),
	}
	for _, file := range files {
		for text := range strings.SplitSeq(file, "\n---\n") {
			if strings.TrimSpace(text) == "" {
				continue
			}
			if err := o.add([]byte(text)); err != nil {
				return nil, fmt.Errorf("%w in\n%s", err, text)
			}
		}
	}
	return o, nil
}

func (o *Objects) add(text []byte) error {
	var head metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(text, &head); err != nil {
		return err
	}
	switch kind := head.APIVersion + " " + head.Kind; kind {
	case "apps/v1 Deployment":
		return decode(text, head.Name, o.Deployments)
	case "apps/v1 StatefulSet":
		return decode(text, head.Name, o.StatefulSets)
	case "v1 Service":
		return decode(text, head.Name, o.Services)
	case "networking.k8s.io/v1 NetworkPolicy":
		return decode(text, head.Name, o.Policies)
	case "policy/v1 PodDisruptionBudget":
		return decode(text, head.Name, o.Budgets)
	case "autoscaling/v2 HorizontalPodAutoscaler":
		return decode(text, head.Name, o.Autoscalers)
	default:
		return fmt.Errorf("no type of Kubernetes' API is known for %s", kind)
	}
}

func decode[T any](text []byte, name string, into map[string]*T) error {
	value := new(T)
	into[name] = value
	return yaml.UnmarshalStrict(text, value)
}
