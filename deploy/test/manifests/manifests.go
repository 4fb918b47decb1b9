// Package manifests renders deploy/kubernetes and reads what comes out by the
// types of Kubernetes' API.
package manifests

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Objects are the objects of a kustomization, by name.
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
	o := &Objects{
		Deployments:  make(map[string]*appsv1.Deployment),
		StatefulSets: make(map[string]*appsv1.StatefulSet),
		Services:     make(map[string]*corev1.Service),
		Policies:     make(map[string]*networkingv1.NetworkPolicy),
		Budgets:      make(map[string]*policyv1.PodDisruptionBudget),
		Autoscalers:  make(map[string]*autoscalingv2.HorizontalPodAutoscaler),
	}
	for _, r := range rendered.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			return nil, err
		}
		if err := o.add(r.GetGvk().String(), r.GetName(), text); err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.GetKind(), r.GetName(), err)
		}
	}
	return o, nil
}

func (o *Objects) add(kind, name string, text []byte) error {
	switch kind {
	case "Deployment.v1.apps":
		return decode(text, name, o.Deployments)
	case "StatefulSet.v1.apps":
		return decode(text, name, o.StatefulSets)
	case "Service.v1.[noGrp]":
		return decode(text, name, o.Services)
	case "NetworkPolicy.v1.networking.k8s.io":
		return decode(text, name, o.Policies)
	case "PodDisruptionBudget.v1.policy":
		return decode(text, name, o.Budgets)
	case "HorizontalPodAutoscaler.v2.autoscaling":
		return decode(text, name, o.Autoscalers)
	}
	return fmt.Errorf("no type of Kubernetes' API is known for %s", kind)
}

func decode[T any](text []byte, name string, into map[string]*T) error {
	value := new(T)
	into[name] = value
	return yaml.UnmarshalStrict(text, value)
}
