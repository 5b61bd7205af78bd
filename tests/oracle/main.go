// Answers which nodes kube-scheduler's own filters accept for a pod. Each line of standard input is a JSON list of
// Kubernetes objects: a cluster, and the pod without a node whose turn it is as the last one. Each line of standard
// output is {"feasible": [names], "refused": {name: "plugin: reason"}}, or {"error": "…"}.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// Those that judge nodes.
var filters = []string{
	"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit",
	"VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity",
	"DynamicResources",
}

type answer struct {
	Feasible []string          `json:"feasible"`
	Refused  map[string]string `json:"refused"`
	Error    string            `json:"error,omitempty"`
}

func main() {
	metrics.Register()
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		found, err := judge(line)
		if err != nil {
			found = &answer{Error: err.Error()}
		}
		if err := out.Encode(found); err != nil {
			return
		}
	}
}

func judge(line []byte) (*answer, error) {
	objects, nodes, pods, err := decoded(line)
	if err != nil {
		return nil, err
	}
	last := len(pods) - 1
	pod, placed := pods[last], held(pods[:last], nodes)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	profile, err := filtering()
	if err != nil {
		return nil, err
	}
	devices, err := deviceManager(ctx, factory)
	if err != nil {
		return nil, err
	}
	snapshot := internalcache.NewSnapshot(placed, nodes)
	judging, err := frameworkruntime.NewFramework(
		ctx, plugins.NewInTreeRegistry(), profile,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedDRAManager(devices),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
	)
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := allocationsKnown(ctx, devices, objects); err != nil {
		return nil, err
	}
	return verdicts(ctx, judging, snapshot, pod)
}

// What kube-scheduler knows of devices, as `pkg/scheduler/scheduler.go` makes it, without rules for taints, which are
// off by default.
func deviceManager(
	ctx context.Context, factory informers.SharedInformerFactory,
) (*dynamicresources.DefaultDRAManager, error) {
	resource := factory.Resource().V1()
	claims := assumecache.NewAssumeCache(
		klog.FromContext(ctx), resource.ResourceClaims().Informer(), "ResourceClaim", "", nil,
	)
	options := resourceslicetracker.Options{
		EnableConsumableCapacity: utilfeature.DefaultFeatureGate.Enabled(features.DRAConsumableCapacity),
		SliceInformer:            resource.ResourceSlices(),
	}
	slices, err := resourceslicetracker.StartTracker(ctx, options)
	if err != nil {
		return nil, err
	}
	return dynamicresources.NewDRAManager(ctx, claims, slices, factory), nil
}

// Wait until the manager has been told of all claims and of their devices, which happens behind the informers.
func allocationsKnown(
	ctx context.Context, devices *dynamicresources.DefaultDRAManager, objects []runtime.Object,
) error {
	claims, allocated := 0, 0
	for _, one := range objects {
		if claim, isClaim := one.(*resourceapi.ResourceClaim); isClaim {
			claims++
			if claim.Status.Allocation != nil {
				allocated += len(claim.Status.Allocation.Devices.Results)
			}
		}
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		known, err := devices.ResourceClaims().List()
		if err != nil || len(known) < claims {
			return false, err
		}
		// Refused while the manager is being told of a claim, which kube-scheduler answers with a further try.
		held, err := devices.ResourceClaims().ListAllAllocatedDevices()
		last = err
		return err == nil && len(held) >= allocated, nil
	})
	return errors.Join(err, last)
}

func decoded(line []byte) ([]runtime.Object, []*v1.Node, []*v1.Pod, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(line, &raw); err != nil {
		return nil, nil, nil, err
	}
	var objects []runtime.Object
	var nodes []*v1.Node
	var pods []*v1.Pod
	for _, one := range raw {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(one, nil, nil)
		if err != nil {
			return nil, nil, nil, err
		}
		objects = append(objects, object)
		switch typed := object.(type) {
		case *v1.Node:
			nodes = append(nodes, typed)
		case *v1.Pod:
			pods = append(pods, typed)
		}
	}
	if len(pods) == 0 {
		return nil, nil, nil, fmt.Errorf("there is no pod")
	}
	return objects, nodes, pods, nil
}

// The pods that use a node: kube-scheduler's cache has no others.
func held(pods []*v1.Pod, nodes []*v1.Node) []*v1.Pod {
	known := map[string]bool{}
	for _, node := range nodes {
		known[node.Name] = true
	}
	var found []*v1.Pod
	for _, pod := range pods {
		ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		if known[pod.Spec.NodeName] && !ended {
			found = append(found, pod)
		}
	}
	return found
}

// The default profile, with the filters alone.
func filtering() (*config.KubeSchedulerProfile, error) {
	whole, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profile := whole.Profiles[0]
	profile.Plugins = &config.Plugins{
		QueueSort: config.PluginSet{Enabled: []config.Plugin{{Name: "PrioritySort"}}},
		Bind:      config.PluginSet{Enabled: []config.Plugin{{Name: "DefaultBinder"}}},
	}
	for _, name := range filters {
		plugin := config.Plugin{Name: name}
		profile.Plugins.Filter.Enabled = append(profile.Plugins.Filter.Enabled, plugin)
		if name != "NodeUnschedulable" && name != "NodeName" && name != "TaintToleration" {
			profile.Plugins.PreFilter.Enabled = append(profile.Plugins.PreFilter.Enabled, plugin)
		}
	}
	return &profile, nil
}

func verdicts(
	ctx context.Context, judging framework.Framework, snapshot *internalcache.Snapshot, pod *v1.Pod,
) (*answer, error) {
	found := &answer{Feasible: []string{}, Refused: map[string]string{}}
	all, err := snapshot.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	state := framework.NewCycleState()
	only, status, _ := judging.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() && !status.IsRejected() {
		return nil, status.AsError()
	}
	for _, info := range all {
		name := info.Node().Name
		why := status
		if why.IsSuccess() && !only.AllNodes() && !only.NodeNames.Has(name) {
			why = fwk.NewStatus(fwk.Unschedulable, "not among the nodes of PreFilter")
		}
		if why.IsSuccess() {
			why = judging.RunFilterPlugins(ctx, state.Clone(), pod, info)
		}
		if why.IsSuccess() {
			found.Feasible = append(found.Feasible, name)
		} else {
			plugin := why.Plugin()
			if plugin == "" {
				plugin = "PreFilter"
			}
			found.Refused[name] = plugin + ": " + why.Message()
		}
	}
	return found, nil
}
