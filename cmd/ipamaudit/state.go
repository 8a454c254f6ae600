package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ipamaudit/audit"
	"ipamaudit/audit/config"
	"ipamaudit/audit/state"
)

// memory is the state of earlier runs and, for a run that writes, its lock.
type memory struct {
	state  *audit.State
	store  audit.Store
	writes bool
	unlock func()
}

func (m *memory) close() {
	if m.unlock != nil {
		m.unlock()
	}
}

// openState loads what the last run left. A run that will write takes the lock
// first, so that two runs never tell people the same thing.
func (o *runOptions) openState(ctx context.Context, a *app) (*memory, error) {
	m := &memory{state: audit.NewState(), writes: (o.notify || o.saveState) && !o.dryRun}
	store, err := openStore(o.config.State, o.log)
	if err != nil {
		return nil, usage("state: %w", err)
	}
	if store == nil {
		if o.saveState {
			return nil, usage("--save-state has nowhere to save: set state.file or state.configMap in the configuration")
		}
		if o.notify {
			o.log.Warn("no state is configured: every finding is new in every run, and a crash between two calls can only be mended by a search")
		}
		return m, nil
	}
	m.store = store
	if m.writes {
		if m.unlock, err = store.Lock(ctx); err != nil {
			return nil, &exitError{stateExit(err), fmt.Errorf("state %s: %w", store, err)}
		}
	}
	if m.state, err = store.Load(ctx); err != nil {
		m.close()
		return nil, &exitError{audit.ExitUsage, fmt.Errorf("state %s: %w", store, err)}
	}
	return m, nil
}

// stateExit: another run at work is no fault of the configuration.
func stateExit(err error) int {
	if errors.Is(err, audit.ErrLocked) {
		return audit.ExitNotify
	}
	return audit.ExitUsage
}

// openStore returns nil where no state is configured.
func openStore(c config.State, log *slog.Logger) (audit.Store, error) {
	switch {
	case c.File != "":
		return state.NewFile(c.File), nil
	case c.ConfigMap.IsSet():
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("state.configMap needs to run inside a cluster: %w", err)
		}
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return nil, err
		}
		namespace := c.ConfigMap.Namespace
		if namespace == "" {
			if namespace, err = ownNamespace(); err != nil {
				return nil, err
			}
		}
		return state.NewConfigMap(client, namespace, c.ConfigMap.Name, state.ConfigMapOptions{Warn: func(s string) { log.Warn("state", "warning", s) }}), nil
	}
	return nil, nil
}

// ownNamespace is the namespace of the pod that this program runs in.
func ownNamespace() (string, error) {
	const file = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("state.configMap.namespace is not set and the pod's own is not known: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
