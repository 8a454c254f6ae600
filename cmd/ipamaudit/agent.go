package main

import (
	"context"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"ipamaudit/audit"
	"ipamaudit/audit/agent"
	"ipamaudit/audit/config"
)

func (a *app) agentCommand() *cobra.Command {
	var node, namespace, kubeconfig string
	ag := &agent.Agent{Read: agent.ReadKernel}
	var once bool
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Publish this node's route table for the audit (the DaemonSet of deploy/agent runs this)",
		Long: `agent reads the kernel's policy rules and route tables, keeps what concerns the IP
pools, and publishes it in one ConfigMap, named as the node, when it changed. It
needs no privilege on the node and changes nothing there.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if node == "" {
				node = a.getenv("NODE_NAME")
			}
			if namespace == "" {
				namespace = a.getenv("NAMESPACE")
			}
			if node == "" || namespace == "" {
				return usage("agent wants to know its node and namespace: --node and --namespace, or $NODE_NAME and $NAMESPACE from the downward API")
			}
			for name, d := range map[string]time.Duration{"poll": ag.Poll, "quiet": ag.Quiet, "heartbeat": ag.Heartbeat} {
				if d < time.Second || d > time.Hour {
					return usage("--%s is %s; it must be between 1s and 1h", name, d)
				}
			}
			ag.Node, ag.PoolsEvery = node, agent.DefaultPoolsEvery
			format, _ := cmd.Flags().GetString("log-format")
			level, _ := cmd.Flags().GetString("log-level")
			ag.Log = a.logger(config.Log{Format: format, Level: level}, false)
			if err := a.agent(cmd.Context(), ag, namespace, kubeconfig, once); err != nil {
				return &exitError{audit.ExitIncomplete, err}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&node, "node", "", "`NAME` of this node (default $NODE_NAME)")
	f.StringVar(&namespace, "namespace", "", "`NAME` of the namespace to publish in (default $NAMESPACE)")
	f.StringVar(&kubeconfig, "kubeconfig", "", "`FILE`; empty: the pod's own account")
	f.DurationVar(&ag.Poll, "poll", agent.DefaultPoll, "time between two looks at the kernel")
	f.DurationVar(&ag.Quiet, "quiet", agent.DefaultQuiet, "least time between two writes of a table that changes")
	f.DurationVar(&ag.Heartbeat, "heartbeat", agent.DefaultHeartbeat, "time between two writes of a table that does not change")
	f.BoolVar(&once, "once", false, "publish once and end")
	f.String("log-format", "json", "`FORMAT` of logs on stderr: text or json")
	f.String("log-level", "info", "`LEVEL`: debug, info, warn or error")
	return cmd
}

func (a *app) agent(ctx context.Context, ag *agent.Agent, namespace, kubeconfig string, once bool) error {
	rc, err := rest.InClusterConfig()
	if kubeconfig != "" {
		rc, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return err
	}
	rc.Timeout = 30 * time.Second
	rc.UserAgent = "ipamaudit-agent"
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	dyn, err := dynamic.NewForConfig(rc)
	if err != nil {
		return err
	}
	ag.Pools = func(ctx context.Context) ([]netip.Prefix, error) { return agent.Pools(ctx, dyn) }
	var publisher *agent.Publisher
	ag.Publish = func(ctx context.Context, packed []byte, readAt time.Time, routes int) error {
		if publisher == nil {
			// Not before: an API server that is away must not end the agent.
			if publisher, err = agent.NewPublisher(ctx, client, namespace, ag.Node); err != nil {
				return err
			}
		}
		return publisher.Publish(ctx, packed, readAt, routes)
	}
	if once {
		return ag.Once(ctx)
	}
	return ag.Run(ctx)
}
