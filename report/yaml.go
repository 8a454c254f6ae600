package report

import (
	"bytes"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"ipamaudit/audit"
)

// yamlWriter writes the JSON report as YAML: the same keys, in alphabetical order.
type yamlWriter struct{}

func (yamlWriter) Write(w io.Writer, r *audit.Report) error {
	var doc bytes.Buffer
	err := jsonWriter{}.Write(&doc, r)
	if err != nil {
		return err
	}
	out, err := yaml.JSONToYAML(doc.Bytes())
	if err != nil {
		return fmt.Errorf("turn the report into YAML: %w", err)
	}
	_, err = w.Write(out)
	return err
}
