package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"ipamaudit/audit"
	"ipamaudit/audit/config"
	"ipamaudit/checks"
	"ipamaudit/report/text"
)

func (a *app) stateCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{Use: "state", Short: "Show what the last run left for the next one", Args: knownVerb}
	cmd.PersistentFlags().StringVar(&file, "config", "", "configuration `FILE` (default $IPAMAUDIT_CONFIG)")
	cmd.AddCommand(&cobra.Command{
		Use: "show", Short: "Print the state for people: clusters, tickets, messages, calls whose answer was lost", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, warnings, err := a.loadConfig(file, cmd)
			if err != nil {
				return err
			}
			a.warn(warnings)
			store, err := openStore(c.State, a.logger(c.Log, true))
			switch {
			case err != nil:
				return usage("state: %w", err)
			case store == nil:
				return usage("no state is configured: set state.file or state.configMap, and name the configuration with --config or %s", config.EnvFile)
			}
			st, err := store.Load(cmd.Context())
			if err != nil {
				return usage("state: %w", err)
			}
			_, err = io.WriteString(a.out, describeState(st, store.String()))
			return err
		},
	})
	cmd.RunE = func(*cobra.Command, []string) error { return usage("state wants a verb: show") }
	return cmd
}

// describeState is the state as tables. Names in it came from clusters.
func describeState(st *audit.State, where string) string {
	var b strings.Builder
	if st.RunID == "" {
		fmt.Fprintf(&b, "The state in %s is empty: no run has written it yet.\n", text.Terminal(where))
		return b.String()
	}
	fmt.Fprintf(&b, "State in %s, written by run %s on %s\n", text.Terminal(where), text.Terminal(st.RunID), moment(st.UpdatedAt))
	section := func(title string, header table.Row, rows []table.Row) {
		if len(rows) == 0 {
			fmt.Fprintf(&b, "\n%s: none\n", title)
			return
		}
		t := table.NewWriter()
		t.SetStyle(table.StyleLight)
		t.Style().Options = table.OptionsNoBordersAndSeparators
		t.AppendHeader(header)
		t.AppendRows(rows)
		fmt.Fprintf(&b, "\n%s (%d)\n%s\n", title, len(rows), t.Render())
	}
	section("Clusters", table.Row{"name", "id", "last complete", "failed nights", "findings"}, clusterRows(st))
	section("Tickets", table.Row{"key", "cluster", "check", "severity", "is"}, ticketRows(st))
	section("Messages", table.Row{"run", "part", "channel", "posted"}, messageRows(st))
	section("Channels", table.Row{"channel", "told by", "as of", "still to be told"}, channelRows(st))
	return b.String()
}

func channelRows(st *audit.State) []table.Row {
	var rows []table.Row
	for _, name := range slices.Sorted(maps.Keys(st.Channels)) {
		ch := st.Channels[name]
		untold := 0
		for _, u := range ch.Untold {
			if u.At.After(ch.ToldAsOf) && !u.Hidden {
				untold++
			}
		}
		still := fmt.Sprint(untold)
		if ch.LostAt.After(ch.ToldAsOf) {
			still += " and more"
		}
		rows = append(rows, table.Row{text.Terminal(name), text.Terminal(cmp.Or(ch.ToldRun, "no run")), moment(ch.ToldAsOf), still})
	}
	return rows
}

func clusterRows(st *audit.State) []table.Row {
	var rows []table.Row
	for _, name := range slices.Sorted(maps.Keys(st.Clusters)) {
		c := st.Clusters[name]
		n := map[checks.Severity]int{}
		for _, f := range c.Findings {
			if f.ResolvedRun == "" {
				n[f.Severity]++
			}
		}
		var found []string
		for _, s := range checks.Severities() {
			if n[s] > 0 {
				found = append(found, fmt.Sprintf("%d %s", n[s], s))
			}
		}
		rows = append(rows, table.Row{text.Terminal(name), text.Terminal(c.ID), moment(c.LastComplete), c.Failures, cmp.Or(strings.Join(found, ", "), "none")})
	}
	return rows
}

func ticketRows(st *audit.State) []table.Row {
	var rows []table.Row
	for _, t := range st.Tickets {
		is := "told"
		switch {
		case t.Intent != nil:
			is = fmt.Sprintf("%s since %s, the answer was lost: the next run looks for it", t.Intent.Op, moment(t.Intent.StartedAt))
		case !t.MissingSince.IsZero():
			is = "not seen since " + moment(t.MissingSince)
		case t.Resolved:
			is = "told that it is gone"
		}
		if t.Reopened > 0 {
			is += fmt.Sprintf(", reopened %d times", t.Reopened)
		}
		rows = append(rows, table.Row{text.Terminal(cmp.Or(t.Key, "none yet")), text.Terminal(t.Cluster), text.Terminal(t.Check), string(t.Severity), is})
	}
	slices.SortFunc(rows, func(a, b table.Row) int {
		return cmp.Or(cmp.Compare(fmt.Sprint(a[1]), fmt.Sprint(b[1])), cmp.Compare(fmt.Sprint(a[2]), fmt.Sprint(b[2])))
	})
	return rows
}

// messageRows are the newest first, of each digest its parts together.
func messageRows(st *audit.State) []table.Row {
	type message struct {
		part string
		*audit.MessageState
	}
	var all []message
	for key, m := range st.Messages {
		_, part, _ := strings.Cut(key, "|"+m.RunID+"|")
		all = append(all, message{part, m})
	}
	slices.SortFunc(all, func(a, b message) int {
		return cmp.Or(cmp.Compare(b.RunID, a.RunID), cmp.Compare(a.Channel, b.Channel), a.PostedAt.Compare(b.PostedAt), cmp.Compare(a.part, b.part))
	})
	var rows []table.Row
	for _, m := range all {
		posted := moment(m.PostedAt)
		if m.Intent != nil {
			posted = "perhaps on " + moment(m.Intent.StartedAt) + ", the answer was lost"
		}
		rows = append(rows, table.Row{text.Terminal(m.RunID), text.Terminal(m.part), text.Terminal(m.Channel), posted})
	}
	return rows
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return text.Minute(t)
}
