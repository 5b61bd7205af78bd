// Runs kube-controller-manager's own Job controller, as `cmd/kube-controller-manager/app/batch.go` starts it, on
// the cluster of the kubeconfig that is the only argument. Its other controllers are three quarters of the packages that
// kube-controller-manager has, and no test needs them.
package main

import (
	"context"
	"log"
	"os"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/features"
)

// The default of kube-controller-manager.
const concurrentSyncs = 5

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	// Both make the controller create PodGroups.
	for _, gate := range []featuregate.Feature{features.GenericWorkload, features.WorkloadWithJob} {
		if err := utilfeature.DefaultMutableFeatureGate.Set(string(gate) + "=true"); err != nil {
			return err
		}
	}
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
	groups := factory.Scheduling().V1alpha2()
	controller, err := job.NewController(
		ctx, client, factory.Core().V1().Pods(), factory.Batch().V1().Jobs(), groups.Workloads(), groups.PodGroups(),
	)
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	controller.Run(ctx, concurrentSyncs)
	return nil
}
