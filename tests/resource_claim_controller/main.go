// Runs kube-controller-manager's own controller of resource claims, as `cmd/kube-controller-manager/app/core.go` starts
// it, on the cluster of the kubeconfig that is the only argument.
package main

import (
	"context"
	"log"
	"os"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/resourceclaim"
)

// The default of kube-controller-manager.
const concurrentSyncs = 50

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // no limit: with the default of 20 requests a second, tests would wait for that alone
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	resource := factory.Resource().V1()
	controller, err := resourceclaim.NewController(
		klog.FromContext(ctx), resourceclaim.Features{PrioritizedList: true}, client, factory.Core().V1().Pods(),
		factory.Scheduling().V1alpha2().PodGroups(), resource.ResourceClaims(), resource.ResourceClaimTemplates(),
	)
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	controller.Run(ctx, concurrentSyncs)
	return nil
}
