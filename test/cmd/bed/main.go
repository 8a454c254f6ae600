// Command bed is the test bed for hands: real API servers on loopback, to try
// ipamaudit on.
//
//	go run ./cmd/bed programs                    find or build kube-apiserver and etcd, print where they are
//	go run ./cmd/bed up -n 3 -kubeconfig FILE    run three clusters until Ctrl-C
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"ipamaudit/test/bed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errors.New("usage: bed programs | bed up [flags]")
	}
	switch args[0] {
	case "programs":
		p, err := bed.FindPrograms(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s\n%s\n", p.APIServer, p.Etcd)
		return nil
	case "up":
		return up(ctx, args[1:], stderr)
	default:
		return fmt.Errorf("unknown command %q: usage: bed programs | bed up [flags]", args[0])
	}
}

func up(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	flags.SetOutput(stderr)
	n := flags.Int("n", 1, "number of clusters, named bed-1, bed-2, …")
	kubeconfig := flags.String("kubeconfig", "bed.kubeconfig", "file to write, with a context for each cluster")
	load := flags.String("load", "", "directory with a snapshot to load into each; default: the scenario of T296303")
	api := flags.String("calico", "", "v1, v3, both or none; default: what the snapshot is written in")
	if err := flags.Parse(args); err != nil {
		return err
	}
	objects, calico, err := content(*load, *api)
	if err != nil {
		return err
	}

	clusters := make([]*bed.Cluster, *n)
	defer func() {
		for _, c := range clusters {
			if c != nil {
				c.Stop()
			}
		}
	}()
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range clusters {
		group.Go(func() (err error) {
			clusters[i], err = bed.Start(groupCtx, bed.Options{Name: fmt.Sprintf("bed-%d", i+1), Calico: calico})
			if err != nil {
				return err
			}
			return clusters[i].Load(groupCtx, objects)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var contexts []bed.Context
	for _, c := range clusters {
		contexts = append(contexts, c.Context())
	}
	if err := bed.WriteKubeconfig(*kubeconfig, contexts...); err != nil {
		return err
	}
	path, err := filepath.Abs(*kubeconfig)
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%d cluster(s) are up, each with %d objects; Ctrl-C ends them. Try:\n  ipamaudit run --kubeconfig %s --all-contexts\n", *n, len(objects), path)
	<-ctx.Done()
	return os.Remove(*kubeconfig)
}

// content returns what to load, and the API to install for it.
func content(dir, api string) ([]*unstructured.Unstructured, bed.CalicoAPI, error) {
	apis := map[string]bed.CalicoAPI{"v1": bed.CalicoV1, "v3": bed.CalicoV3, "both": bed.CalicoBoth, "none": bed.NoCalico}
	calico, ok := apis[api]
	if !ok && api != "" {
		return nil, "", fmt.Errorf("-calico %s: want one of %s", api, strings.Join([]string{"v1", "v3", "both", "none"}, ", "))
	}
	if dir == "" {
		if api == "" {
			calico = bed.CalicoV1
		}
		return bed.Kubestage(calico), calico, nil
	}
	objects, err := bed.ReadDir(dir)
	if err != nil {
		return nil, "", err
	}
	if api == "" {
		calico = bed.CalicoAPIOf(objects)
	}
	return objects, calico, nil
}
