// The suite around the controller tests of training-operator, with which they are compiled (testbed/sources.py) in
// place of their own one: it asks a cluster that runs, by KUBECONFIG, and starts no controller. Only those tests can
// run in it that look at the API alone.
package tensorflow

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubeflowv1 "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
)

var (
	testK8sClient client.Client
	reconciler    *TFJobReconciler // of other tests in this package
)

func TestAPIs(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "TFJobs of whoever serves them")
}

var _ = BeforeSuite(func() {
	Expect(kubeflowv1.AddToScheme(scheme.Scheme)).To(Succeed())
	config, err := ctrl.GetConfig()
	Expect(err).NotTo(HaveOccurred())
	testK8sClient, err = client.New(config, client.Options{Scheme: scheme.Scheme})
	Expect(err).NotTo(HaveOccurred())
})
