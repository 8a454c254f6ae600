package scale

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ipamaudit/test/bed"
)

// Fleet lets one cluster stand for many: each has an address of its own
// (…/cluster-17) and another UID of kube-system, which is how clusters are told
// apart. Close the server.
func Fleet(ctx context.Context, c *bed.Cluster, n int) (contexts []bed.Context, server *httptest.Server, err error) {
	config := c.Admin()
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	var system *corev1.Namespace
	if system, err = kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{}); err != nil {
		return nil, nil, err
	}
	pass := httputil.NewSingleHostReverseProxy(target)
	pass.Transport, pass.ErrorLog = transport, log.New(io.Discard, "", 0)
	pass.ModifyResponse = func(resp *http.Response) error {
		if !strings.HasPrefix(resp.Request.URL.Path, "/api/v1/namespaces") {
			return nil
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		// Of equal length, so that protobuf stays whole.
		body = bytes.ReplaceAll(body, []byte(system.UID), []byte(resp.Request.Header.Get("X-Uid")))
		resp.Body = io.NopCloser(bytes.NewReader(body))
		return nil
	}
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		r.URL.Path, r.URL.RawPath = "/"+rest, ""
		r.Header.Set("X-Uid", uid(name))
		r.Header.Del("Accept-Encoding")
		r.Header.Del("Authorization")
		pass.ServeHTTP(w, r)
	}))
	for i := range n {
		name := fmt.Sprintf("cluster-%d", i+1)
		contexts = append(contexts, bed.Context{Name: name, Config: &rest.Config{
			Host: server.URL + "/" + name, BearerToken: "any", TLSClientConfig: rest.TLSClientConfig{CAData: certificate(server)},
		}})
	}
	return contexts, server, nil
}

func certificate(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}
