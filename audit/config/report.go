package config

import "fmt"

// Report says what a run writes when no -o is given.
type Report struct {
	Outputs []Output `yaml:"outputs" doc:"none: a table on stdout"`
}

// Output is one report.
type Output struct {
	Format string `yaml:"format" required:"true" enum:"table,json,yaml,markdown,junit,prometheus" example:"table" doc:"what to write"`
	File   string `yaml:"file" doc:"where to; empty: stdout, which only one report may use"`
}

func (r *Report) validate(f *findings) {
	files := map[string]string{}
	for i, o := range r.Outputs {
		path := fmt.Sprintf("report.outputs[%d]", i)
		target := "stdout"
		if o.File != "" {
			target = fmt.Sprintf("%q", o.File)
		}
		unique(f, files, target, path, "writes to %s, as %s does", target)
	}
}
