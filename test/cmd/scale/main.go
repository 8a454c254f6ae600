// Command scale measures what an audit of a large cluster costs, against a real
// API server, and prints the tables of docs/performance.md.
//
//	go run ./cmd/scale              5,000 nodes, 20,000 blocks, 100,000 pods; ten minutes, 10 GB of memory
//	go run ./cmd/scale -part 10     a tenth of it, which is what CI runs
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"ipamaudit/test/bed"
	"ipamaudit/test/scale"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

type options struct {
	part, repeat, fleet int
	program, dir        string
	maxMiB              int64
	maxRatio            float64
}

func run(ctx context.Context) error {
	var o options
	flag.IntVar(&o.part, "part", 1, "audit one n-th of the full cluster")
	flag.IntVar(&o.repeat, "repeat", 3, "measure so often and take the best")
	flag.IntVar(&o.fleet, "fleet", 200, "clusters of the fleet; 0: none")
	flag.StringVar(&o.program, "program", os.Getenv("IPAMAUDIT_BIN"), "ipamaudit to measure; default: a fresh build")
	flag.Int64Var(&o.maxMiB, "max-mib", 300, "fail when the program needs more memory")
	flag.Float64Var(&o.maxRatio, "max-ratio", 0, "fail when collecting takes longer than fetching by this factor; 0: only tell")
	flag.StringVar(&o.dir, "dir", "", "work in this existing directory and leave the saved snapshot there")
	flag.Parse()

	dir := o.dir
	if dir == "" {
		made, err := os.MkdirTemp("", "ipamaudit-scale-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(made)
		dir = made
	}
	if o.program == "" {
		o.program = filepath.Join(dir, "ipamaudit")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.program, "./cmd/ipamaudit")
		build.Dir = ".."
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("go build ./cmd/ipamaudit (run this in test/): %w\n%s", err, out)
		}
	}
	fmt.Printf("%s, %d CPUs, load %s\n\n", runtime.Version(), runtime.NumCPU(), load())
	return errors.Join(one(ctx, o, dir), many(ctx, o, dir))
}

func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(raw))[:3], " ")
}

// one measures the large cluster.
func one(ctx context.Context, o options, dir string) error {
	c, err := bed.Start(ctx, bed.Options{Name: "scale", Calico: bed.CalicoV1, MinimalCRDs: true})
	if err != nil {
		return err
	}
	defer c.Kill()
	size := scale.Full().Part(o.part)
	began := time.Now()
	if err := scale.Load(ctx, c, size); err != nil {
		return err
	}
	if err := scale.Settle(ctx, c.Admin()); err != nil {
		return err
	}
	fmt.Printf("%d nodes, %d blocks and affinities, %d pods and handles, loaded in %s\n\n", size.Nodes, size.Blocks, size.Pods, time.Since(began).Round(time.Second))

	fmt.Println("| fetched and thrown away | s | MB | requests |\n| --- | --- | --- | --- |")
	best := scale.Fetched{Took: time.Hour}
	for _, page := range []int{500, 1000, 2000, 5000} {
		fastest := scale.Fetched{Took: time.Hour}
		for range o.repeat {
			f, err := scale.Fetch(ctx, c.Admin(), scale.Settings{Page: page})
			if err != nil {
				return err
			}
			if f.Took < fastest.Took {
				fastest = f
			}
		}
		fmt.Printf("| pages of %d | %.1f | %d | %d |\n", page, fastest.Took.Seconds(), fastest.Bytes/1e6, fastest.Requests)
		if fastest.Took < best.Took {
			best = fastest
		}
	}

	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := bed.WriteKubeconfig(kubeconfig, c.Context()); err != nil {
		return err
	}
	unlimited := filepath.Join(dir, "unlimited.yaml")
	if err := os.WriteFile(unlimited, []byte("run: {qps: 10000, burst: 10000}\n"), 0o600); err != nil {
		return err
	}
	fmt.Println("\n| ipamaudit | s | of fetching | CPU s | peak MiB |\n| --- | --- | --- | --- | --- |")
	var failed []error
	for _, m := range []struct {
		name string
		args []string
	}{
		// These need the same lists, and their findings no second look.
		{"collect, one look (--check multi-block-nodes, leaked-ips, affinity-conflicts)", []string{"--config", unlimited, "--check", "multi-block-nodes", "--check", "leaked-ips", "--check", "affinity-conflicts"}},
		{"everything, no limit of requests", []string{"--config", unlimited}},
		{"everything, as shipped (qps 20)", nil},
	} {
		fastest := scale.Ran{Wall: time.Hour}
		for range o.repeat {
			r, err := scale.Run(ctx, o.program, append([]string{"run", "--kubeconfig", kubeconfig, "--fail-on", "none", "-o", "json=" + filepath.Join(dir, "report.json")}, m.args...)...)
			if err != nil {
				return err
			}
			r.PeakMiB = max(r.PeakMiB, fastest.PeakMiB)
			if r.Wall > fastest.Wall {
				fastest.PeakMiB = r.PeakMiB
				continue
			}
			fastest = r
		}
		ratio := fastest.Wall.Seconds() / best.Took.Seconds()
		fmt.Printf("| %s | %.1f | %.2f | %.1f | %d |\n", m.name, fastest.Wall.Seconds(), ratio, fastest.CPU.Seconds(), fastest.PeakMiB)
		if fastest.PeakMiB > o.maxMiB {
			failed = append(failed, fmt.Errorf("%s: %d MiB, more than %d", m.name, fastest.PeakMiB, o.maxMiB))
		}
		if o.maxRatio > 0 && m.args != nil && ratio > o.maxRatio {
			failed = append(failed, fmt.Errorf("%s: %.2f times the fetching, more than %.2f", m.name, ratio, o.maxRatio))
		}
	}
	fmt.Println()

	saved := filepath.Join(dir, "saved")
	if _, err := scale.Run(ctx, o.program, "snapshot", "--kubeconfig", kubeconfig, "--config", unlimited, "-o", saved); err != nil {
		return err
	}
	bytes := int64(0)
	if err := filepath.WalkDir(saved, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		bytes += info.Size()
		return err
	}); err != nil {
		return err
	}
	whole := filepath.Join(dir, "whole")
	if err := os.Mkdir(whole, 0o755); err != nil {
		return err
	}
	wholeBytes, err := scale.Save(ctx, c.Admin(), whole)
	if err != nil {
		return err
	}
	c.Kill() // what is measured now needs no API server, which would only be in the way
	fmt.Println("| saved snapshot | MB | s | MB/s | CPU s | peak MiB |\n| --- | --- | --- | --- | --- | --- |")
	for _, m := range []struct {
		name, dir string
		bytes     int64
	}{{"whole lists, as kubectl saves them", whole, wholeBytes}, {"reduced by ipamaudit snapshot", saved, bytes}} {
		fastest := scale.Ran{Wall: time.Hour}
		for range o.repeat {
			r, err := scale.Run(ctx, o.program, "run", "--from", m.dir, "--fail-on", "none", "-o", "json="+filepath.Join(dir, "report.json"))
			if err != nil {
				return err
			}
			r.PeakMiB = max(r.PeakMiB, fastest.PeakMiB)
			if r.Wall > fastest.Wall {
				fastest.PeakMiB = r.PeakMiB
				continue
			}
			fastest = r
		}
		fmt.Printf("| %s | %d | %.1f | %.0f | %.1f | %d |\n", m.name, m.bytes/1e6, fastest.Wall.Seconds(), float64(m.bytes)/1e6/fastest.Wall.Seconds(), fastest.CPU.Seconds(), fastest.PeakMiB)
		if fastest.PeakMiB > o.maxMiB {
			failed = append(failed, fmt.Errorf("%s: %d MiB, more than %d", m.name, fastest.PeakMiB, o.maxMiB))
		}
	}
	fmt.Println()
	return errors.Join(failed...)
}

// many measures a fleet of small clusters, 16 at a time.
func many(ctx context.Context, o options, dir string) error {
	if o.fleet == 0 {
		return nil
	}
	c, err := bed.Start(ctx, bed.Options{Name: "small", Calico: bed.CalicoV1, MinimalCRDs: true})
	if err != nil {
		return err
	}
	defer c.Kill()
	if err := scale.Load(ctx, c, scale.Size{Nodes: 10, Blocks: 20, Pods: 300}); err != nil {
		return err
	}
	contexts, server, err := scale.Fleet(ctx, c, o.fleet)
	if err != nil {
		return err
	}
	defer server.Close()
	fmt.Println("| clusters of 10 nodes and 300 pods, 16 at a time | s | CPU s | peak MiB |\n| --- | --- | --- | --- |")
	for n := o.fleet / 8; n <= o.fleet; n *= 2 {
		kubeconfig := filepath.Join(dir, fmt.Sprintf("fleet-%d", n))
		if err := bed.WriteKubeconfig(kubeconfig, contexts[:n]...); err != nil {
			return err
		}
		r, err := scale.Run(ctx, o.program, "run", "--kubeconfig", kubeconfig, "--all-contexts", "--fail-on", "none", "-o", "json="+filepath.Join(dir, "report.json"))
		if err != nil {
			return err
		}
		fmt.Printf("| %d | %.1f | %.1f | %d |\n", n, r.Wall.Seconds(), r.CPU.Seconds(), r.PeakMiB)
	}
	return nil
}
