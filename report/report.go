// Package report writes an audit.Report: one format, one file. A writer reads
// the report and nothing else (no clock, no environment), so that two runs over
// the same input differ only in what describes the run.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"ipamaudit/audit"
)

//go:generate go test . -run "TestSchemaIsGenerated|TestMetricsPageIsGenerated" -update

// The formats, by the names that -o takes.
const (
	Table      = "table"
	JSON       = "json"
	YAML       = "yaml"
	Markdown   = "markdown"
	JUnit      = "junit"
	Prometheus = "prometheus"
)

// Formats lists the formats that exist.
func Formats() []string { return []string{Table, JSON, YAML, Markdown, JUnit, Prometheus} }

// Writer writes a report in one format.
type Writer interface {
	Write(w io.Writer, r *audit.Report) error
}

// Options are what the place that a report is written to asks for. Formats
// for machines heed none of them.
type Options struct {
	// Color switches ANSI colours on. Whether the place is a terminal and what
	// NO_COLOR says is for the caller to find out.
	Color bool
	// Width is the terminal's width in columns; 0 means 100.
	Width int
	// Details shows every remediation step, healthy clusters in full and lists
	// up to 50 entries.
	Details bool
}

// For returns the writer of a format.
func For(format string, opts Options) (Writer, error) {
	switch format {
	case Table:
		return tableWriter{opts}, nil
	case JSON:
		return jsonWriter{}, nil
	case YAML:
		return yamlWriter{}, nil
	case Markdown:
		return markdownWriter{}, nil
	case JUnit:
		return junitWriter{}, nil
	case Prometheus:
		return prometheusWriter{}, nil
	default:
		return nil, unknownFormat(format)
	}
}

func unknownFormat(format string) error {
	return fmt.Errorf("unknown report format %q: want one of %s", format, strings.Join(Formats(), ", "))
}

func known(format string) bool { return slices.Contains(Formats(), format) }
