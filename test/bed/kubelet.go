package bed

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// Command is what runs in a container. It writes to the streams and returns the
// exit code.
type Command func(ctx context.Context, pod string, args []string, stdout, stderr io.Writer) int

// Kubelets stands in for the kubelets of all nodes where commands are executed:
// the API server speaks to it as to a real one, in the kubelet's own code for
// streams, and only the container is missing. The cluster has to be started with
// --kubelet-preferred-address-types=ExternalIP.
func (c *Cluster) Kubelets(t testing.TB, run Command) {
	t.Helper()
	authority, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := authority.serving(time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		options, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeExec(w, r, executor{run}, r.PathValue("pod"), "", r.PathValue("container"), r.URL.Query()["command"], options,
			time.Hour, 30*time.Second, remotecommand.SupportedStreamingProtocols)
	})
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*certificate}}
	srv.StartTLS()
	t.Cleanup(srv.CloseClientConnections)
	address := netip.MustParseAddrPort(srv.Listener.Addr().String())
	kube, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Items {
		patch, err := json.Marshal(object{"status": object{
			"addresses":       []any{object{"type": "ExternalIP", "address": address.Addr().String()}},
			"daemonEndpoints": object{"kubeletEndpoint": object{"Port": address.Port()}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kube.CoreV1().Nodes().Patch(t.Context(), n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
}

type executor struct{ run Command }

// ExecInContainer implements remotecommand.Executor.
func (e executor) ExecInContainer(ctx context.Context, pod, _, _ string, cmd []string, _ io.Reader, stdout, stderr io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if code := e.run(ctx, pod, cmd, stdout, stderr); code != 0 {
		return utilexec.CodeExitError{Code: code, Err: io.ErrUnexpectedEOF}
	}
	return nil
}
