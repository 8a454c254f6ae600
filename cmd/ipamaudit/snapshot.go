package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"ipamaudit/audit"
	"ipamaudit/audit/collect"
	"ipamaudit/ipam"
)

func (a *app) snapshotCommand() *cobra.Command {
	var in input
	var out string
	cmd := &cobra.Command{
		Use:   "snapshot -o PATH",
		Short: "Save what the audit reads of one cluster, for run --from",
		Long: `Writes one cluster's state into a directory or a .tar.gz that "run --from" reads
back with the same verdict. Only the fields that the audit looks at are written:
no Secrets, no environment of workloads, no annotations of others.`,
		Example: `  ipamaudit snapshot --context staging -o staging.tar.gz
  ipamaudit snapshot --from dump/ -o small.tar.gz     # shrink a saved one`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := in.validate(); err != nil {
				return err
			}
			if out == "" {
				return usage("where to? use -o PATH (a directory, or a name that ends in .tar.gz)")
			}
			return a.snapshot(cmd.Context(), cmd, &in, out)
		},
	}
	in.flags(cmd)
	cmd.Flags().StringVarP(&out, "output", "o", "", "`PATH` of the directory or .tar.gz to write; it must not exist yet")
	return cmd
}

func (a *app) snapshot(ctx context.Context, cmd *cobra.Command, in *input, out string) error {
	c, warnings, err := a.loadConfig(in.configFile, cmd)
	if err != nil {
		return err
	}
	a.warn(warnings)
	clusters, _, err := in.clusters(a, c)
	if err != nil {
		return err
	}
	if len(clusters) != 1 {
		return usage("a snapshot is of one cluster, and %d are chosen: use --context NAME", len(clusters))
	}
	cl := clusters[0]
	rec, err := collect.NewRecorder(out)
	if err != nil {
		return usage("%w", err)
	}
	// Every check's resources, whatever is enabled here and now: a snapshot is
	// also for those who look at it later.
	wanted := wantedResources(func(string) bool { return true })
	src := a.liveSource(cl, c, wanted, rec)
	if cl.saved != "" {
		src = collect.NewFiles(cl.saved, collect.Options{Name: collect.SavedName(cl.saved), AsOf: in.asOf, Stdin: a.in, Record: rec})
	}
	ctx, cancel := context.WithTimeout(ctx, cl.cluster.Timeout)
	defer cancel()
	s, err := src.Collect(ctx)
	if err != nil {
		code := audit.ExitIncomplete
		if cl.saved != "" {
			code = audit.ExitUsage
		}
		return &exitError{code, errors.Join(err, rec.Discard())}
	}
	if err := rec.Finish(s, "ipamaudit "+buildVersion()); err != nil {
		return &exitError{audit.ExitUsage, err}
	}
	fmt.Fprintf(a.err, "%s: %s as of %s: %d nodes, %d pods, %d blocks, %d route tables\n",
		out, s.Cluster.Name, s.AsOf.Format(time.RFC3339), len(s.Nodes), len(s.Pods), len(s.Blocks), len(s.Tables))
	if unread := unread(s); len(unread) > 0 {
		for _, u := range unread {
			fmt.Fprintln(a.err, "not read:", u)
		}
		return &exitError{audit.ExitIncomplete, fmt.Errorf("the snapshot lacks %d resources; checks that cannot do without them will say unknown", len(unread))}
	}
	return nil
}

// unread lists what was asked for and not answered.
func unread(s *ipam.Snapshot) []string {
	var out []string
	for _, rc := range s.Coverage.List() {
		if rc.Status == ipam.Forbidden || rc.Status == ipam.Failed {
			out = append(out, fmt.Sprintf("%s (%s: %s)", rc.Resource, rc.Status, rc.Detail))
		}
	}
	return out
}
