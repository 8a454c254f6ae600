package config

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

// mask stands wherever a secret would be printed.
const mask = "<secret>"

// Secret is text that no formatting verb, encoder or logger prints. It is masked wherever fmt can
// reach its methods, which excludes unexported fields of other structs: hold a [Credential] there.
type Secret string

// Reveal is the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String is a mask, or empty for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// Format masks every verb; a Stringer alone would show the value to a wrong one, such as %d.
func (s Secret) Format(f fmt.State, verb rune) {
	if verb == 'q' || verb == 'v' && f.Flag('#') {
		fmt.Fprintf(f, "%q", s.String())
		return
	}
	_, _ = io.WriteString(f, s.String())
}

// GoString masks %#v.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// MarshalText masks JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue masks log/slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// maxSecretFile is far above every token and a guard against a wrong path.
const maxSecretFile = 64 << 10

// Credential is a secret that is given in place or in a file. It holds the value in a closure, so
// that printing a struct around it, unexported fields and all, cannot show it.
type Credential struct {
	path  string // of the setting
	file  string
	value func() Secret
}

func newCredential(path string, value Secret, file string) Credential {
	return Credential{path: path, file: file, value: func() Secret { return value }}
}

// IsSet tells whether there is a value or a file.
func (c Credential) IsSet() bool {
	return c.file != "" || c.value != nil && c.value() != ""
}

// Read returns the secret. A file is read anew each time, so that a rotated token is used without a
// restart; one line break at its end is dropped. A credential that is not set reads as an error.
func (c Credential) Read() (string, error) {
	if c.file == "" {
		if !c.IsSet() {
			return "", fmt.Errorf("%s: no secret: set %s or %sFile", c.path, c.path, c.path)
		}
		return c.value().Reveal(), nil
	}
	f, err := os.Open(c.file)
	if err != nil {
		return "", fmt.Errorf("%sFile: %w", c.path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return "", fmt.Errorf("%sFile: %w", c.path, err)
	}
	if len(data) > maxSecretFile {
		return "", fmt.Errorf("%sFile: %s is larger than %d bytes: not a token", c.path, c.file, maxSecretFile)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if text == "" {
		return "", fmt.Errorf("%sFile: %s is empty", c.path, c.file)
	}
	return text, nil
}

// String says where the secret is, never what it is.
func (c Credential) String() string {
	switch {
	case c.file != "":
		return "file " + c.file
	case c.IsSet():
		return mask
	}
	return "not set"
}

// validate reports what is wrong with a secret and its File twin. A file that is not there yet is no
// problem: configurations are validated where the secrets are not mounted.
func (c Credential) validate(f *findings) {
	value := c.value()
	switch {
	case value != "" && c.file != "":
		f.fail(c.path+"File", "is set together with %s: keep one of the two", c.path)
	case value == mask:
		f.fail(c.path, "is the mask that `config view` prints, not a secret")
	case strings.ContainsAny(value.Reveal(), "\r\n"):
		f.fail(c.path, "contains a line break: check how it was quoted")
	case value != "" && f.origins[c.path].name == "" && readableByOthers(f.file):
		f.warn(c.path, "stands in a file that every user of this machine can read: use %sFile or chmod 0600", c.path)
	case c.file != "" && readableByOthers(c.file):
		f.warn(c.path+"File", "every user of this machine can read %q: chmod 0600 (for a Secret volume, defaultMode: 0440)", c.file)
	}
}

func readableByOthers(file string) bool {
	info, err := os.Stat(file)
	if err != nil {
		return false // reading it will say why
	}
	return info.Mode().Perm()&0o004 != 0
}
