package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"ipamaudit/audit/config"
	"ipamaudit/checks"
)

func (a *app) checksCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "checks [ID]",
		Short: "List the checks, or explain one: what, why, how detected, remediation",
		Args:  cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return checkIDs(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				t := table.NewWriter()
				t.SetStyle(table.StyleLight)
				t.Style().Options = table.OptionsNoBordersAndSeparators
				t.AppendHeader(table.Row{"check", "one per", "finds"})
				for _, c := range checks.All() {
					t.AppendRow(table.Row{c.ID, strings.ToLower(c.SubjectKind), c.Title})
				}
				_, err := fmt.Fprintln(a.out, t.Render()+"\n\nipamaudit checks ID explains one.")
				return err
			}
			c, ok := checks.Find(args[0])
			if !ok {
				return usage("no check is called %q%s", args[0], suggest(args[0], checkIDs()))
			}
			_, err := fmt.Fprint(a.out, c.Markdown())
			return err
		},
	}
}

func checkIDs() []string {
	var ids []string
	for _, c := range checks.All() {
		ids = append(ids, c.ID)
	}
	return ids
}

// checkSpecs tells the configuration which checks and parameters exist.
func checkSpecs() []config.CheckSpec {
	var specs []config.CheckSpec
	for _, c := range checks.All() {
		spec := config.CheckSpec{ID: c.ID}
		for _, p := range c.Params {
			spec.Params = append(spec.Params, config.ParamSpec{
				Name: p.Name, Type: config.ParamType(p.Type), Default: p.Default, Min: p.Min, Max: p.Max, Doc: p.Doc,
			})
		}
		specs = append(specs, spec)
	}
	return specs
}

// suggest ends an error about a name with the nearest one that exists, or all of them.
func suggest(name string, all []string) string {
	if near := config.Nearest(name, all); near != "" {
		return fmt.Sprintf(" (did you mean %q?)", near)
	}
	return ": want one of " + strings.Join(all, ", ")
}
