package config

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/spf13/pflag"
)

const envPrefix = "IPAMAUDIT_"

// EnvFile names the configuration file where no --config does. The command line reads it; Load only
// knows that it is no setting.
const EnvFile = envPrefix + "CONFIG"

// serviceLink matches what Kubernetes puts into every container of a namespace with a Service called
// ipamaudit or ipamaudit-something (docs: "Service / Environment variables").
var serviceLink = regexp.MustCompile(`^IPAMAUDIT_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// envName is the variable of a setting: "jira.apiBaseURL" → IPAMAUDIT_JIRA_API_BASE_URL.
func envName(path string) string {
	var b strings.Builder
	runes := []rune(path)
	for i, c := range runes {
		switch {
		case c == '.':
			b.WriteByte('_')
			continue
		case i > 0 && unicode.IsUpper(c) &&
			(unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(c))
	}
	return envPrefix + b.String()
}

// environment reads "NAME=value" pairs into values by path. An empty value counts as not set, as it does for viper: an
// optional key of a Secret must not blank a setting.
func (r *reader) environment(env []string) map[string]any {
	paths, keys := map[string]string{}, map[string]*key{}
	names := []string{EnvFile}
	r.tree.root.walk("", func(path string, k *key) {
		if k.kind == kindSection {
			return
		}
		name := envName(path)
		paths[name], keys[name] = path, k
		if k.kind.single() {
			names = append(names, name)
		}
	})
	values := map[string]any{}
	for _, pair := range env {
		name, text, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || name == EnvFile || serviceLink.MatchString(name) && keys[name] == nil {
			continue
		}
		k, path := keys[name], paths[name]
		switch {
		case k == nil:
			r.f.failAt(Problem{File: sourceEnv, Path: printable(name), Message: "unknown variable", Suggestion: Nearest(name, names)})
		case text == "":
		case !k.kind.single():
			r.f.failAt(Problem{File: sourceEnv, Path: name, Message: path + " is " + string(k.kind) + ": it can only be set in a file"})
		default:
			r.override(path, k, origin{file: sourceEnv, name: name}, text, values)
		}
	}
	return values
}

// flags reads the flags that were given and that a setting names into values by path.
func (r *reader) flags(set *pflag.FlagSet) map[string]any {
	values := map[string]any{}
	if set == nil {
		return values
	}
	r.tree.root.walk("", func(path string, k *key) {
		if k.flag == "" {
			return
		}
		if flag := set.Lookup(k.flag); flag != nil && flag.Changed {
			r.override(path, k, origin{file: sourceFlags, name: "--" + k.flag}, flag.Value.String(), values)
		}
	})
	return values
}

// override reads one value that comes from elsewhere than the file.
func (r *reader) override(path string, k *key, from origin, text string, values map[string]any) {
	r.f.origins[path] = from
	if v := r.word(text, k, path); v != nil {
		values[path] = v
	}
}
