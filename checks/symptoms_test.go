package checks

import (
	"slices"
	"strings"
	"testing"
)

// Every check can be found from something that people see, and every symptom
// leads to a check that exists.
func TestSymptoms(t *testing.T) {
	has := map[string]bool{}
	seen := map[string]bool{}
	for _, s := range Symptoms() {
		if _, ok := Find(s.Check); !ok || s.Seen == "" || s.Means == "" || !slices.Contains(Places(), s.Where) {
			t.Errorf("%+v: leads nowhere", s)
		}
		if key := s.Where + s.Seen + s.If; seen[key] {
			t.Errorf("%q: twice", s.Seen)
		} else {
			seen[key] = true
		}
		has[s.Check] = true
	}
	for _, c := range All() {
		if !has[c.ID] {
			t.Errorf("%s: no symptom leads to it", c.ID)
		}
	}
}

// Messages as people paste them, with their names and addresses, and the check
// whose row a search for a piece of them finds.
func TestSymptomsAreFound(t *testing.T) {
	page := SymptomPage()
	for piece, check := range map[string]string{
		"cannot allocate new block due to per host block limit":                                                      "node-block-limit",
		"failed to request 1 IPv4 addresses. IPAM allocated only 0":                                                  "pool-utilisation",
		"Assigned 0 out of 1 requested IPv4 addresses; No more free affine blocks and strict affinity enabled":       "pool-utilisation",
		"cannot find a qualified ippool":                                                                             "pool-config",
		"the given pool (10.233.64.0/18) does not exist, or is not enabled":                                          "pool-config",
		"Failed to assign address 90.0.0.1: resource already exists: 90.0.0.1: Address already assigned in block":    "leaked-ips",
		"route (Ifindex: 131, Dst: 172.25.136.1/32, Scope: link) already exists for an interface other than 'cali0'": "stuck-pods",
		"Unable to autoassign an address - pools are likely exhausted. type=\"ipipTunnelAddress\"":                   "blockless-nodes",
		"Calico is currently not ready to process requests":                                                          "datastore-locked",
		"Confirmed IP leak after 15m0.004366191s":                                                                    "misbooked-ips",
		"Found 472 in-use IPs that are in active IP pools but have no corresponding IPAM allocation.":                "unallocated-pod-ips",
		"Found 63145 handles with no matching IPs (and 6544 handles with matches).":                                  "handle-leaks",
		"failed: operation Delete is not supported on IPAMHandleKey(id=k8s-pod-network.c435)":                        "handle-leaks",
		"Can't cleanup node yet - IPs still in use on this node handle=\"vxlan-tunnel-addr-10.1.154.0\"":             "orphan-affinities",
		"resource already exists: BlockKey(cidr=10.123.84.64/26)":                                                    "affinity-conflicts",
		"no IP addresses available in range set: 10.42.5.1-10.42.5.254":                                              "stuck-pods",
		"global strict affinity should not be false for Windows node":                                                "ipam-config",
	} {
		found := ""
		for line := range strings.Lines(page) {
			cells := strings.Split(line, " | ")
			for text := range strings.SplitSeq(strings.TrimPrefix(cells[0], "| "), "<br>") {
				if code := strings.Split(text, "`"); len(code) > 2 && code[0] == "" {
					text = code[1] // what follows tells rows with one text apart
				}
				first, rest, _ := strings.Cut(text, " … ")
				if len(cells) > 2 && len(first) > 7 && strings.Contains(piece, first) && strings.Contains(piece, rest) {
					found += cells[2]
				}
			}
		}
		if !strings.Contains(found, "["+check+"]") {
			t.Errorf("%s: leads to %q, want %s", piece, found, check)
		}
	}
}

// The words in which people tell what they see lead somewhere, too.
func TestReportersWordsAreFound(t *testing.T) {
	page := strings.ToLower(SymptomPage())
	for words, check := range map[string]string{
		"leaked handles":                        "handle-leaks",
		"crashloopbackoff":                      "blockless-nodes",
		"vxlantunneladdress":                    "blockless-nodes",
		"quarter of an hour":                    "misbooked-ips",
		"power cut":                             "leaked-ips",
		"reboot":                                "leaked-ips",
		"half of the connections fail":          "route-disagreement",
		"autoscaling removed the node":          "orphan-affinities",
		"20 pods":                               "node-capacity",
		"blocksize 32":                          "node-capacity",
		"confirmed ip leak`, `node=` is not in": "orphan-affinities",
	} {
		found := false
		for line := range strings.Lines(page) {
			found = found || strings.Contains(line, words) && leadsTo(line, check)
		}
		if !found {
			t.Errorf("%q does not lead to %s", words, check)
		}
	}
}

// What people type into a search of this page, in their own words, finds the
// right page among the first three rows that have all the words.
func TestPlainWordsLeadToThePage(t *testing.T) {
	page := SymptomPage()
	for _, q := range [][2]string{
		{"drain daemonset", "leaked-ips"},
		{"container runtime", "leaked-ips"},
		{"sandbox", "leaked-ips"},
		{"retry", "leaked-ips"},
		{"another interface left behind", "stuck-pods"},
		{"recreated on another node", "blackholed-routes"},
		{"unreachable ping", "blackholed-routes"},
		{"blackhole no mask", "blackholed-routes"},
		{"static ip", "stuck-pods"},
		{"static ip reboot", "leaked-ips"},
		{"static ip reach", "blackholed-routes"},
		{"static ip use", "stuck-pods"},
		{"power cut", "leaked-ips"},
		{"finished job", "leaked-ips"},
		{"batch", "leaked-ips"},
		{"upgrade pool fills", "leaked-ips"},
		{"/19", "block-layout"},
		{"block size changed", "block-layout"},
		{"gpu", "blockless-nodes"},
		{"second node", "blockless-nodes"},
		{"new nodes", "blockless-nodes"},
		{"scaled up", "blockless-nodes"},
		{"13%", "pool-utilisation"},
		{"90%", "pool-utilisation"},
		{"97%", "leaked-ips"},
		{"97%", "pool-utilisation"},
		{"/32", "node-capacity"},
		{"/32 limit", "node-block-limit"},
		{"20 pods", "node-capacity"},
		{"cbr0", "stuck-pods"},
		{"cni/networks", "stuck-pods"},
		{"lease files", "stuck-pods"},
		{"k3s lease", "stuck-pods"},
		{"failed to allocate for range 0", "stuck-pods"},
		{"failed (add)", "stuck-pods"},
		{"failed to request 1 ipv4 addresses", "pool-utilisation"},
		{"many nodes were added", "blackholed-routes"},
		{"many nodes added blackhole", "blackholed-routes"},
		{"no blackhole", "blackholed-routes"},
		{"nodes borrow owner's pods", "blackholed-routes"},
		{"error updating resource", "ipam-gc"},
		{"unknown reboot", "leaked-ips"},
		{"wireguard booked", "tunnel-ips"},
		{"annotation empty", "unallocated-pod-ips"},
		{"rke2", "stuck-pods"},
		{"uninstall", "ipam-data"},
		{"reinstall", "ipam-data"},
		{"restore backup", "ipam-data"},
		{"installer upgrade", "ipam-data"},
		{"podcidr", "ipam-data"},
		{"canal", "stuck-pods"},
		{"flannel", "stuck-pods"},
		{"openshift", "stuck-pods"},
		{"eks vpc", "ipam-data"},
		{"pools gone", "ipam-data"},
		{"image volume", "stuck-pods"},
		{"slow etcd", "stuck-pods"},
		{"slow handles", "handle-leaks"},
		{"slowly", "pool-utilisation"},
		{"old pool disabled", "pool-config"},
		{"migration pool", "pool-config"},
		{"nodeselector match", "pool-config"},
		{"!all()", "pool-config"},
		{"nodeselector vxlan", "tunnel-ips"},
		{"dns", "tunnel-ips"},
		{"65th", "tunnel-ips"},
		{"windows four", "leaked-ips"},
		{"windows strict", "ipam-config"},
		{"load balancer ip", "blackholed-routes"},
		{"loadbalancer", "leaked-ips"},
		{"service cidr", "blackholed-routes"},
		{"service broken", "blackholed-routes"},
		{"kubevirt stopped", "leaked-ips"},
		{"virtual machine same ip", "duplicate-ips"},
		{"live migration", "duplicate-ips"},
		{"same ip reboot", "duplicate-ips"},
		{"tunl0", "duplicate-ips"},
		{"hostnetwork", "duplicate-ips"},
		{"completed", "duplicate-ips"},
		{"ipv6 leaked", "leaked-ips"},
		{"dual-stack", "leaked-ips"},
		{"multus", "leaked-ips"},
		{"by hand", "leaked-ips"},
		{".255", "node-capacity"},
		{"max pods", "node-capacity"},
		{"short-lived", "node-capacity"},
		{"burst", "affinity-conflicts"},
		{"pending seconds", "affinity-conflicts"},
		{"removed re-added", "affinity-conflicts"},
		{"switch", "borrowed-ips"},
		{"borrowed empty", "borrowed-ips"},
		{"spot", "orphan-affinities"},
		{"autoscal", "orphan-affinities"},
		{"karpenter", "orphan-affinities"},
		{"renamed", "orphan-affinities"},
		{"etcd grows", "handle-leaks"},
		{"re-imaged", "misbooked-ips"},
		{"scaled down", "multi-block-nodes"},
		{"second block", "multi-block-nodes"},
		{"f5", "multi-block-nodes"},
		{"ipreservation", "pool-utilisation"},
		{"no_ippool", "pool-utilisation"},
		{"cordoned", "blockless-nodes"},
		{"strictaffinity true", "ipam-config"},
		{"lock clean", "datastore-locked"},
		{"kube-controllers missing", "ipam-gc"},
		{"crash", "blockless-nodes"},
		{"proto 80", "blackholed-routes"},
		{"--node flag", "leaked-ips"},
	} {
		var rows []string
		for line := range strings.Lines(strings.ToLower(page)) {
			if !strings.HasPrefix(line, "| ") || slices.ContainsFunc(strings.Fields(q[0]), func(w string) bool { return !strings.Contains(line, w) }) {
				continue
			}
			rows = append(rows, line)
		}
		if !slices.ContainsFunc(rows[:min(3, len(rows))], func(row string) bool { return leadsTo(row, q[1]) }) {
			t.Errorf("%q: not to %s, but %s", q[0], q[1], strings.Join(rows[:min(3, len(rows))], ""))
		}
	}
}

// leadsTo reports whether the last column of a row is the check's page, or a part of it.
func leadsTo(row, check string) bool {
	cells := strings.Split(row, " | ")
	return strings.HasPrefix(cells[len(cells)-1], "["+check+"](checks/"+check+".md")
}

// A link into a page leads to a heading that is there once.
func TestSymptomsLeadToHeadings(t *testing.T) {
	for _, s := range Symptoms() {
		c, _ := Find(s.Check)
		n := 0
		for line := range strings.Lines(c.Markdown()) {
			if h, ok := strings.CutPrefix(line, "### "); ok && anchor(strings.TrimSpace(h)) == anchor(s.Heading) {
				n++
			}
		}
		if s.Heading != "" && n != 1 {
			t.Errorf("%s: %d headings %q on the page of %s", s.Seen, n, s.Heading, s.Check)
		}
	}
}

// What is healthy says so first, and the page that it leads to is there to say why.
func TestOddRowsSaySo(t *testing.T) {
	for _, s := range Symptoms() {
		if s.Where == looksOdd && !strings.HasPrefix(s.Means, "healthy") {
			t.Errorf("%s: %s", s.Seen, s.Means)
		}
	}
}
