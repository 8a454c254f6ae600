package agent

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"ipamaudit/audit/collect"
)

// readRules lists the policy rules. netlink.RuleList leaves out what a rule
// does, and passes over selectors that it does not know: here a rule with one
// of those is a rule that may or may not match (linux/fib_rules.h).
func readRules(family int) ([]collect.PolicyRule, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfInfomsg(family))
	messages, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWRULE)
	if err != nil {
		return nil, err
	}
	var out []collect.PolicyRule
	for _, m := range messages {
		if len(m) < unix.SizeofRtMsg {
			return nil, errors.New("a policy rule is too short")
		}
		// fib_rule_hdr is laid out as rtmsg is, with the action in place of the type.
		h := nl.DeserializeRtMsg(m)
		if int(h.Family) != family {
			continue
		}
		attrs, err := nl.ParseRouteAttr(m[h.Len():])
		if err != nil {
			return nil, err
		}
		r, err := ruleOf(h, attrsOf(attrs))
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b collect.PolicyRule) int { return cmp.Compare(a.Priority, b.Priority) })
	return out, nil
}

type attr struct {
	number uint16
	value  []byte
}

// number32 is the value as a number in the machine's order; 0 for other sizes.
func (a attr) number32() uint32 {
	if len(a.value) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(a.value)
}

const fibRuleInvert = 0x2 // FIB_RULE_INVERT

func attrsOf(raw []syscall.NetlinkRouteAttr) []attr {
	out := make([]attr, len(raw))
	for i, a := range raw {
		out[i] = attr{a.Attr.Type, a.Value}
	}
	return out
}

func ruleOf(h *nl.RtMsg, attrs []attr) (collect.PolicyRule, error) {
	r := collect.PolicyRule{Action: actionOf(h.Type), Not: h.Flags&fibRuleInvert != 0, Suppress: -1, Table: tableName(int(h.Table))}
	var when []string
	marked := false
	for _, a := range attrs {
		var err error
		switch n := a.number32(); a.number {
		case unix.FRA_PRIORITY:
			r.Priority = int(n)
		case unix.FRA_TABLE:
			r.Table = tableName(int(n))
		case unix.FRA_SRC:
			r.Src, err = prefixIn(a.value, int(h.Src_len))
		case unix.FRA_DST:
			r.Dst, err = prefixIn(a.value, int(h.Dst_len))
		case unix.FRA_SUPPRESS_PREFIXLEN:
			if n != ^uint32(0) {
				r.Suppress = int(n)
			}
		case unix.FRA_SUPPRESS_IFGROUP:
			if n != ^uint32(0) {
				when = append(when, fmt.Sprintf("suppress_ifgroup %d", n))
			}
		case unix.FRA_FWMARK, unix.FRA_FWMASK:
			marked = true
		case unix.FRA_L3MDEV:
			// Only packets of interfaces inside a VRF, which pods' are not.
			r.Action = "nop"
		case unix.FRA_IIFNAME:
			when = append(when, "iif "+strings.TrimRight(string(a.value), "\x00"))
		case unix.FRA_OIFNAME:
			when = append(when, "oif "+strings.TrimRight(string(a.value), "\x00"))
		case unix.FRA_PROTOCOL, unix.FRA_GOTO, unix.FRA_FLOW, unix.FRA_PAD:
			// Who made the rule, where a goto leads, and what is counted: they select nothing.
		default:
			when = append(when, fmt.Sprintf("selector %d", a.number))
		}
		if err != nil {
			return r, fmt.Errorf("rule %d: %w", r.Priority, err)
		}
	}
	if h.Tos != 0 {
		when = append(when, fmt.Sprintf("tos %#x", h.Tos))
	}
	r.OnlyMark = marked && len(when) == 0
	if marked {
		when = append(when, "fwmark")
	}
	r.When = strings.Join(when, " ")
	if r.Action != "lookup" {
		r.Table = ""
	}
	return r, nil
}

// actionOf names FR_ACT_…. An unknown one is like a jump: where it leads is not known.
func actionOf(number uint8) string {
	switch number {
	case unix.FR_ACT_TO_TBL:
		return "lookup"
	case unix.FR_ACT_NOP:
		return "nop"
	case unix.FR_ACT_BLACKHOLE:
		return "blackhole"
	case unix.FR_ACT_UNREACHABLE:
		return "unreachable"
	case unix.FR_ACT_PROHIBIT:
		return "prohibit"
	}
	return "goto"
}

func prefixIn(addr []byte, bits int) (netip.Prefix, error) {
	a, ok := netip.AddrFromSlice(addr)
	if !ok {
		return netip.Prefix{}, fmt.Errorf("an address of %d bytes", len(addr))
	}
	return a.Prefix(bits)
}
