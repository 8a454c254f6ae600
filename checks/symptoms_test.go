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
		"route (Ifindex: 131, Dst: 172.25.136.1/32, Scope: link) already exists for an interface other than 'cali0'": "duplicate-ips",
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
			found = found || strings.Contains(line, words) && strings.Contains(line, "["+check+"]")
		}
		if !found {
			t.Errorf("%q does not lead to %s", words, check)
		}
	}
}
