package deploy_test

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"ipamaudit/audit/config"
)

// TestConfigurations loads what is shipped as the CronJob would, and holds it against the manifests around it.
func TestConfigurations(t *testing.T) {
	job := read[batchv1.CronJob](t, base+"/cronjob.yaml").Spec.JobTemplate.Spec
	state := read[rbacv1.Role](t, base+"/role.yaml").Rules[0].ResourceNames[0]
	for file, clusters := range map[string]int{base + "/config.yaml": 1, "examples/hub/config.yaml": 3} {
		t.Run(file, func(t *testing.T) {
			c, warnings, err := config.Load(config.Options{File: file})
			if err != nil {
				t.Fatal(err)
			}
			for _, warning := range warnings {
				t.Errorf("warning: %v", warning)
			}
			if len(c.Clusters) != clusters || !c.Clusters[0].InCluster {
				t.Errorf("clusters %+v, want %d and the first one in-cluster", c.Clusters, clusters)
			}
			if c.State.ConfigMap.Name != state {
				t.Errorf("state in ConfigMap %q, the Role allows %q", c.State.ConfigMap.Name, state)
			}
			// The Job's deadline kills; the run's own, which still reports what it has, must come well before.
			if deadline := time.Duration(*job.ActiveDeadlineSeconds) * time.Second; c.Run.Timeout >= deadline-10*time.Minute {
				t.Errorf("run.timeout %s leaves too little of the Job's %s to report and notify", c.Run.Timeout, deadline)
			}
		})
	}
}
