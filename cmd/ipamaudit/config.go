package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"ipamaudit/audit/config"
)

func (a *app) configCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{Use: "config", Short: "Show, describe or check the configuration", Args: knownVerb}
	cmd.PersistentFlags().StringVar(&file, "config", "", "configuration `FILE` (default $IPAMAUDIT_CONFIG)")
	cmd.AddCommand(&cobra.Command{
		Use: "view", Short: "Print the effective configuration, secrets masked", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, warnings, err := a.loadConfig(file, cmd)
			if err != nil {
				return err
			}
			a.warn(warnings)
			_, err = a.out.Write(c.View())
			return err
		},
	}, &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of the configuration file", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			schema, err := config.Schema(checkSpecs())
			if err != nil {
				return err
			}
			_, err = a.out.Write(schema)
			return err
		},
	}, &cobra.Command{
		Use: "validate", Short: "Check the configuration and list everything that is wrong", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" && a.getenv(config.EnvFile) == "" {
				return usage("no configuration to check: use --config FILE or set %s", config.EnvFile)
			}
			c, warnings, err := a.loadConfig(file, cmd)
			if err != nil {
				return err
			}
			a.warn(warnings)
			_, err = fmt.Fprintf(a.out, "valid: %d clusters, %d suppressions, %d warnings\n", len(c.Clusters), len(c.Suppressions), len(warnings))
			return err
		},
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return usage("config wants a verb: view, schema or validate")
	}
	return cmd
}

func (a *app) warn(warnings []config.Warning) {
	for _, w := range warnings {
		fmt.Fprintln(a.err, "warning:", w)
	}
}
