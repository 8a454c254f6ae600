package collect

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ipamaudit/ipam"
)

func TestBGPObjects(t *testing.T) {
	s := read(t, `{"apiVersion":"crd.projectcalico.org/v1","kind":"BGPFilter","metadata":{"name":"f"},"spec":{
	 "exportV4":[{"cidr":"10.0.0.0/8","matchOperator":"In","prefixLength":{"min":16,"max":26},"action":"Accept"},{"action":"Reject","source":"RemotePeers","peerType":"iBGP"}],
	 "importV6":[{"cidr":"fd00::/8","matchOperator":"NotIn","prefixLength":{"max":0},"interface":"eth*","action":"Reject"},{"asPathPrefix":[65001],"action":"Reject"}]}}
	{"apiVersion":"crd.projectcalico.org/v1","kind":"BGPFilter","metadata":{"name":"bad"},"spec":{"importV4":[{"action":"Accept"},{"cidr":"10.0.0.0/40","action":"Reject"}]}}
	{"apiVersion":"crd.projectcalico.org/v1","kind":"BGPPeer","metadata":{"name":"p"},"spec":{"peerIP":"192.0.2.1:1790","asNumber":"64600.1","localASNumber":65010,"numAllowedLocalASNumbers":2,"filters":["f"],"localWorkloadSelector":"all()"}}
	{"apiVersion":"crd.projectcalico.org/v1","kind":"BGPConfiguration","metadata":{"name":"node.n1"},"spec":{"asNumber":65001}}
	{"apiVersion":"crd.projectcalico.org/v1","kind":"BGPConfiguration","metadata":{"name":"node.n2"},"spec":{"logSeverityScreen":"Info"}}`)
	want := []ipam.BGPFilter{{Name: "f",
		ExportV4: []ipam.BGPFilterRule{
			{CIDR: netip.MustParsePrefix("10.0.0.0/8"), Operator: "In", MinLength: 16, MaxLength: 26},
			{MinLength: -1, MaxLength: -1, Source: "RemotePeers", PeerType: "iBGP", Reject: true},
		},
		ImportV6: []ipam.BGPFilterRule{
			{CIDR: netip.MustParsePrefix("fd00::/8"), Operator: "NotIn", MinLength: -1, MaxLength: 0, Opaque: true, Reject: true},
			{MinLength: -1, MaxLength: -1, Opaque: true, Reject: true},
		},
	}}
	if diff := cmp.Diff(want, s.Filters, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("filters (-want +got):\n%s", diff)
	}
	if len(s.Rejected) != 1 || s.Rejected[0].Field != "spec.importV4.1.cidr" || s.Rejected[0].Name != "bad" {
		t.Errorf("rejected %v", s.Rejected)
	}
	peer := ipam.BGPPeer{Name: "p", PeerIP: "192.0.2.1:1790", ASNumber: 64600<<16 | 1, LocalASNumber: 65010, NumAllowedLocalASNumbers: 2, Filters: []string{"f"}, Workloads: true}
	if diff := cmp.Diff([]ipam.BGPPeer{peer}, s.Peers, cmpopts.IgnoreUnexported(ipam.BGPPeer{})); diff != "" {
		t.Errorf("peers (-want +got):\n%s", diff)
	}
	if got := s.Peers[0].Address(); got != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("address %s", got)
	}
	if diff := cmp.Diff(map[string]uint32{"n1": 65001}, s.BGP.NodeASNumbers); diff != "" {
		t.Errorf("AS numbers of nodes (-want +got):\n%s", diff)
	}
}
