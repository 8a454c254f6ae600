package collect

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ipamaudit/ipam"
)

// podJSON is a pod as an API server prints it: most of it is of no interest.
const podJSON = `{"metadata":{"name":"app-%[1]d","generateName":"app-","namespace":"ns-%[2]d","uid":"5f2c6c2e-9a53-4b8e-8a0e-%012[1]d","resourceVersion":"%[1]d","creationTimestamp":"2026-11-30T07:44:32Z","labels":{"app":"demo","pod-template-hash":"5d4f8c7b9"},"annotations":{"cni.projectcalico.org/containerID":"c637366f3c9fd7a005224aa6b989a2297c20a4e717381db444d70168b9357d43","cni.projectcalico.org/podIP":"10.%[3]d.%[4]d.%[5]d/32","cni.projectcalico.org/podIPs":"10.%[3]d.%[4]d.%[5]d/32","kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"spec\":{\"containers\":[]}}"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"app-5d4f8c7b9","uid":"aa1a46da-3362-4fc8-ad1d-28bbda18e0f3","controller":true,"blockOwnerDeletion":true}],"managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2026-11-30T07:44:32Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"aa1a46da\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{}}}}]},"spec":{"volumes":[{"name":"kube-api-access-x","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}}],"defaultMode":420}}],"containers":[{"name":"c","image":"registry.example/app:1.2.3","env":[{"name":"A","value":"b"}],"resources":{"limits":{"cpu":"1","memory":"1Gi"}},"volumeMounts":[{"name":"kube-api-access-x","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","nodeName":"node-%[2]d","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-11-30T07:44:40Z"},{"type":"PodScheduled","status":"True","lastTransitionTime":"2026-11-30T07:44:32Z"}],"hostIP":"10.1.0.1","podIP":"10.%[3]d.%[4]d.%[5]d","podIPs":[{"ip":"10.%[3]d.%[4]d.%[5]d"}],"startTime":"2026-11-30T07:44:32Z","containerStatuses":[{"name":"c","state":{"running":{"startedAt":"2026-11-30T07:44:40Z"}},"lastState":{},"ready":true,"restartCount":0,"image":"registry.example/app:1.2.3","imageID":"registry.example/app@sha256:1111","containerID":"containerd://2222","started":true}],"qosClass":"Burstable"}}`

func podList(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"77"},"items":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, podJSON, i, i%500, i>>16&255, i>>8&255, i&255)
	}
	b.WriteString("]}")
	return b.Bytes()
}

// blockList is n blocks of 64 addresses, five of them allocated.
func blockList(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"apiVersion":"crd.projectcalico.org/v1","items":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"apiVersion":"crd.projectcalico.org/v1","kind":"IPAMBlock","metadata":{"annotations":{"projectcalico.org/metadata":"{}"},"creationTimestamp":"2026-11-30T07:44:32Z","generation":121,"name":"b-%d","resourceVersion":"968","uid":"0367dbac-67de-46b9-b91e-%012d"},"spec":{"affinity":"host:node-%d","allocations":[0,1,2,3,4%s],"attributes":[`, i, i, i%500, strings.Repeat(",null", 59))
		for j := range 5 {
			if j > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"handle_id":"k8s-pod-network.%064d","secondary":{"namespace":"ns-%d","node":"node-%d","pod":"app-%d","timestamp":"2026-11-30 07:44:32.924055159 +0000 UTC"}}`, i*5+j, i%500, i%500, i*5+j)
		}
		fmt.Fprintf(&b, `],"cidr":"10.%d.%d.%d/26","deleted":false,"sequenceNumber":1796023705639847903,"sequenceNumberForAllocation":{"0":1796023705639847785},"strictAffinity":false,"unallocated":[5`, i>>10&255, i>>2&255, i&3<<6)
		for j := 6; j < 64; j++ {
			fmt.Fprintf(&b, ",%d", j)
		}
		b.WriteString("]}}")
	}
	b.WriteString(`],"kind":"IPAMBlockList"}`)
	return b.Bytes()
}

func benchmarkStream(b *testing.B, data []byte) {
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := FromReader(context.Background(), bytes.NewReader(data), Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPods(b *testing.B)   { benchmarkStream(b, podList(10_000)) }
func BenchmarkBlocks(b *testing.B) { benchmarkStream(b, blockList(5_000)) }

// BenchmarkForeign is what a directory full of other kinds costs.
func BenchmarkForeign(b *testing.B) {
	foreign := bytes.ReplaceAll(podList(10_000), []byte(`"kind":"PodList","apiVersion":"v1"`), []byte(`"kind":"WidgetList","apiVersion":"example.com/v1"`))
	b.SetBytes(int64(len(foreign)))
	b.ReportAllocs()
	for b.Loop() {
		r := io.MultiReader(strings.NewReader(`{"apiVersion":"v1","kind":"NodeList","items":[]}`), bytes.NewReader(foreign))
		if _, err := FromReader(context.Background(), r, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPage is what one page of a live list costs: pods in protobuf, blocks
// and handles in JSON.
func BenchmarkPage(b *testing.B) {
	var list corev1.PodList
	if err := stdjson.Unmarshal(podList(2000), &list); err != nil {
		b.Fatal(err)
	}
	var handles bytes.Buffer
	handles.WriteString(`{"apiVersion":"crd.projectcalico.org/v1","items":[`)
	for i := range 2000 {
		if i > 0 {
			handles.WriteByte(',')
		}
		fmt.Fprintf(&handles, `{"apiVersion":"crd.projectcalico.org/v1","kind":"IPAMHandle","metadata":{"annotations":{"projectcalico.org/metadata":"{\"creationTimestamp\":null}"},"creationTimestamp":"2026-11-01T06:00:00Z","generation":1,"managedFields":[{"apiVersion":"crd.projectcalico.org/v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{},"f:spec":{".":{}}},"manager":"Go-http-client","operation":"Update","time":"2026-11-01T06:00:00Z"}],"name":"k8s-pod-network.%064d","resourceVersion":"968","uid":"0367dbac-67de-46b9-b91e-%012d"},"spec":{"block":{"10.0.0.0/26":1},"deleted":false,"handleID":"k8s-pod-network.%064d"}}`, i, i, i)
	}
	handles.WriteString(`],"kind":"IPAMHandleList","metadata":{"continue":"","resourceVersion":"1"}}`)
	for name, tc := range map[string]struct {
		raw []byte
		t   task
	}{
		"pods":    {protoBody(b, &list), task{resource: ipam.ResPods, api: "v1"}},
		"blocks":  {blockList(2000), task{resource: ipam.ResBlocks, api: ipam.APIv1}},
		"handles": {handles.Bytes(), task{resource: ipam.ResHandles, api: ipam.APIv1}},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(tc.raw)))
			b.ReportAllocs()
			for b.Loop() {
				p := &page{b: NewBuilder(), t: tc.t}
				if err := p.read(bytes.NewReader(tc.raw), Place{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
