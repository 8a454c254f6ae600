package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Config is the whole configuration, complete and checked. Paths in it are relative to the working
// directory.
type Config struct {
	Clusters     []Cluster    `yaml:"clusters" doc:"The fleet. Each cluster is reached in one of these ways: inCluster, kubeconfig and/or context, kubeconfigSecret. Without any cluster here, the flags --context and --all-contexts choose."`
	Run          Run          `yaml:"run" doc:"The work of one run."`
	Checks       []Check      `yaml:"checks" doc:"Checks that shall not have their defaults. One that is not listed is enabled."`
	Suppressions Suppressions `yaml:"suppressions" doc:"Findings that somebody accepted for a while. They are still reported, but raise no ticket, message or exit code."`
	State        State        `yaml:"state" doc:"What the last run knew: without it every finding is new. Only runs with --notify or --save-state write it."`
	Jira         Jira         `yaml:"jira" doc:"Tickets: one per cluster and check."`
	Slack        Slack        `yaml:"slack" doc:"Digests: one per channel and run."`
	Routing      []Route      `yaml:"routing" doc:"Who hears of what, where that is not the cluster's own channel and project. Of the routes the first decides that matches and names a channel, and likewise a project."`
	Report       Report       `yaml:"report" doc:"Reports; any -o replaces this list."`
	Log          Log          `yaml:"log" doc:"Messages on stderr."`

	tree *tree
}

// Options says where the configuration comes from. Later sources win: defaults, file, environment,
// flags.
type Options struct {
	File   string         // YAML; empty: none
	Env    []string       // "NAME=value", as of os.Environ; only IPAMAUDIT_… is read
	Flags  *pflag.FlagSet // only flags that were given count; may be nil
	Checks []CheckSpec    // the catalogue; nil: any check id and parameter is accepted
	Now    time.Time      // for warnings about suppressions; zero: none
	// TellsNobody: tokens of Jira and Slack may be missing, which is a warning then.
	TellsNobody bool
}

// Load reads, merges and checks the configuration. An error of type *[Error] lists everything that is
// wrong; any other says why the file could not be read.
func Load(o Options) (*Config, []Warning, error) {
	var data []byte
	if o.File != "" {
		var err error
		if data, err = readFile(o.File); err != nil {
			return nil, nil, err
		}
	}
	return load(data, o)
}

func load(data []byte, o Options) (*Config, []Warning, error) {
	f := newFindings(o.File)
	f.tellsNobody = o.TellsNobody
	r := &reader{tree: newTree(o.Checks), f: f}
	merged, err := r.mergeAll(data, o)
	if err != nil {
		return nil, nil, fmt.Errorf("configuration: %w", err)
	}
	c := &Config{tree: r.tree}
	err = merged.UnmarshalExact(c, func(d *mapstructure.DecoderConfig) { d.TagName = "yaml" })
	if err != nil {
		return nil, nil, fmt.Errorf("configuration: %w", err)
	}
	c.Run.validate()
	for i := range c.Clusters {
		c.Clusters[i].inherit(&c.Run)
	}
	c.validate(r.tree.ids(), o.Now, f)
	if err := f.err(); err != nil {
		return nil, f.warnings, err
	}
	return c, f.warnings, nil
}

// mergeAll lets viper lay the sources over each other. Viper lower-cases the keys of every map it is
// given and splits keys at dots, so it gets our sections as maps and everything else (lists, labels,
// parameters) as finished Go values, which it does not look into.
func (r *reader) mergeAll(data []byte, o Options) (*viper.Viper, error) {
	const delimiter = "::"
	viperKey := func(path string) string { return strings.ReplaceAll(path, ".", delimiter) }
	merged := viper.NewWithOptions(viper.KeyDelimiter(delimiter))
	r.tree.root.walk("", func(path string, k *key) {
		if k.def != nil {
			merged.SetDefault(viperKey(path), k.def)
		}
	})
	if o.File != "" {
		if err := merged.MergeConfigMap(r.document(data)); err != nil {
			return nil, err
		}
	}
	for _, overrides := range []map[string]any{r.environment(o.Env), r.flags(o.Flags)} {
		for path, v := range overrides {
			merged.Set(viperKey(path), v)
		}
	}
	return merged, nil
}

// validate checks what the single settings cannot know.
func (c *Config) validate(ids []string, now time.Time, f *findings) {
	validateClusters(c.Clusters, f)
	validateChecks(c.Checks, f)
	c.Suppressions.validate(ids, now, f)
	c.State.validate(f)
	c.Jira.validate(c.Clusters, f)
	c.Slack.validate(c.Clusters, f)
	c.validateRouting(ids, f)
	c.Report.validate(f)
}
