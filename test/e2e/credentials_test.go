package e2e

import (
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"ipamaudit/test/bed"
)

// Credentials that expire while a cluster is read, judged by a real API server.
// The audits are slowed down until they outlive them.

// slowly makes an audit of bed.Kubestage take some twenty seconds. The API
// server itself remembers for ten that a token was good.
const slowly = "pageSize: 4, qps: 2, burst: 1"

// wantNoCalm: whatever was not read, nobody says "ok" of what depends on it. Where
// the credentials had expired before anything was read, the cluster failed.
func wantNoCalm(t *testing.T, full, got cluster, res result, declared map[string]declaration, why string) {
	t.Helper()
	if got.Status == "failed" {
		wantAllLost(t, got, res, why)
		return
	}
	for _, r := range got.Coverage.Resources {
		if r.Status == "failed" {
			wantLost(t, full, got, res, declared, r.Resource, why)
			return
		}
	}
	t.Errorf("nothing failed: %+v", got.Coverage)
}

// TestClientCertificateExpires: a kubeconfig with a client certificate, which
// somebody renews on disk, or nobody.
func TestClientCertificateExpires(t *testing.T) {
	needs(t, "run")
	authority, err := bed.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(dir, name string, data []byte) {
		t.Helper()
		// As those who renew do it: nobody reads a half.
		if err := os.WriteFile(filepath.Join(dir, name+".new"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(dir, "clients.crt", authority.PEM)
	c := bed.New(t, bed.Options{Name: "kubestage", Calico: bed.CalicoV1, APIServerFlags: []string{"--client-ca-file=" + filepath.Join(dir, "clients.crt")}})
	if err := c.Load(t.Context(), bed.Kubestage(bed.CalicoV1)); err != nil {
		t.Fatal(err)
	}
	full := undisturbed(t, c)
	declared := declarations(t, full)
	for _, renewed := range []bool{true, false} {
		t.Run(fmt.Sprintf("renewed=%t", renewed), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			issue := func(good time.Duration) {
				cert, key, err := authority.Issue(pkix.Name{CommonName: "auditor", Organization: []string{"system:masters"}}, time.Now().Add(good))
				if err != nil {
					t.Fatal(err)
				}
				write(dir, "auditor.crt", cert)
				write(dir, "auditor.key", key)
			}
			const good = 6 * time.Second
			issue(good)
			kc := kubeconfigOf(t, c.Name, &clientcmdapi.Cluster{Server: c.URL, CertificateAuthorityData: c.Admin().CAData},
				&clientcmdapi.AuthInfo{ClientCertificate: filepath.Join(dir, "auditor.crt"), ClientKey: filepath.Join(dir, "auditor.key")})
			if renewed {
				timer := time.AfterFunc(good/2, func() { issue(time.Hour) })
				defer timer.Stop()
			}
			start := time.Now()
			got, res := auditOne(t, "--kubeconfig", kc, "--config", settings(t, slowly))
			if took := time.Since(start); renewed && took < good {
				t.Fatalf("the audit took %s: the certificate did not expire", took)
			}
			if renewed {
				wantSame(t, full, got, res)
				return
			}
			wantNoCalm(t, full, got, res, declared, "does not accept the credentials")
		})
	}
}

// TestExecPlugin: a kubeconfig whose credentials come from a program, as clouds
// have them. The API server stops accepting the first token while the cluster is
// read; then the program has another, the same, or breaks.
func TestExecPlugin(t *testing.T) {
	needs(t, "run")
	c := bed.New(t, bed.Options{Name: "kubestage", Calico: bed.CalicoV1})
	if err := c.Load(t.Context(), bed.Kubestage(bed.CalicoV1)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ServiceAccount(t.Context(), "audit", "reader", []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}}); err != nil {
		t.Fatal(err)
	}
	full := undisturbed(t, c)
	declared := declarations(t, full)
	token := func(good time.Duration) string {
		token, err := c.ShortToken(t.Context(), "audit", "reader", good)
		if err != nil {
			t.Error(err)
		}
		return token
	}
	for _, tc := range []struct {
		name   string
		second func() string // what the program prints from the second time on
		lost   string
	}{
		{"rotates", func() string { return credential(token(time.Hour)) }, ""},
		{"has nothing new", func() string { return credential(token(-time.Minute)) }, "does not accept the credentials"},
		{"breaks", func() string { return "" }, "does not accept the credentials"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			program := filepath.Join(dir, "get-token")
			for name, text := range map[string]string{
				"first": credential(token(3 * time.Second)), "second": tc.second(),
				"get-token": "#!/bin/sh\ncd " + dir + "\necho called >> calls\n" +
					"if mkdir once 2>/dev/null; then cat first; exit; fi\n[ -s second ] && exec cat second\necho 'the session is over' >&2\nexit 7\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			kc := kubeconfigOf(t, c.Name, &clientcmdapi.Cluster{Server: c.URL, CertificateAuthorityData: c.Admin().CAData},
				&clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{Command: program, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}})
			got, res := auditOne(t, "--kubeconfig", kc, "--config", settings(t, slowly))
			calls, err := os.ReadFile(filepath.Join(dir, "calls"))
			if n := strings.Count(string(calls), "\n"); err != nil || n < 2 {
				t.Errorf("the program was called %d times: the token did not expire", n)
			} else {
				t.Logf("the program was called %d times", n)
			}
			for _, secret := range []string{"first", "second"} {
				text, _ := os.ReadFile(filepath.Join(dir, secret))
				if _, token, found := strings.Cut(string(text), `"token":"`); found && strings.Contains(res.stdout+res.stderr, token[:40]) {
					t.Errorf("the %s token is in the output", secret)
				}
			}
			if tc.lost == "" {
				wantSame(t, full, got, res)
				return
			}
			if tc.name == "breaks" && !strings.Contains(res.stderr, "the session is over") {
				t.Errorf("nobody hears what the program says:\n%s", res.stderr)
			}
			wantNoCalm(t, full, got, res, declared, tc.lost)
		})
	}
}

// credential is what a credential plug-in prints. It says nothing of when the token expires.
func credential(token string) string {
	return `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"` + token + `"}}`
}
