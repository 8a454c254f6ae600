// Command kube-apiserver is Kubernetes' own API server, built from the module
// proxy for the test bed. `go install k8s.io/kubernetes/cmd/...` refuses to
// because of that module's replace directives; requiring every staging module
// by its published version, as this module does, works without any.
package main

import (
	"os"

	_ "time/tzdata" // CronJob time zones are validated without the host's zoneinfo

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
