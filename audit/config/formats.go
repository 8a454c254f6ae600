package config

import (
	"net/url"
	"path"
	"regexp"
	"strings"
)

// format is a named syntax of texts.
type format struct {
	pattern *regexp.Regexp // also in the schema, so: no syntax that ECMAScript lacks
	check   func(text string) bool
	wants   string // completes "must be …"
	secret  bool   // may contain a password: do not repeat it
}

// formats are the values of the tag "format".
var formats = map[string]format{
	"url":     {pattern: regexp.MustCompile(`^https?://`), check: isPlainURL, wants: "an http or https URL without user, query and fragment", secret: true},
	"glob":    {check: isGlob, wants: "a pattern as of path.Match (unclosed bracket?)"},
	"name":    {pattern: regexp.MustCompile(`^\S{1,253}$`), wants: "a name without spaces"},
	"dns":     {pattern: regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`), wants: "a Kubernetes name: lower case letters, digits, hyphens and dots"},
	"project": {pattern: regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`), wants: "a project key such as NET"},
	"issue":   {pattern: regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*-[1-9][0-9]*$`), wants: "the key of an issue such as NET-42"},
	"link":    {pattern: regexp.MustCompile(`^https?://`), check: isLink, wants: "an http or https URL without user", secret: true},
	"field":   {pattern: regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`), wants: "a field id such as customfield_10010"},
	// Jira refuses the whole ticket for one label with a space.
	"label": {pattern: regexp.MustCompile(`^\S{1,255}$`), wants: "a label: no spaces, at most 255 characters"},
	// Tickets are found by labels that start with it: nothing that JQL would want escaped.
	"channel": {pattern: regexp.MustCompile(`^#?[^\s#]+$`), wants: "a channel id such as C0123456789"},
	"mention": {pattern: regexp.MustCompile(`^(here|channel|[UWS][A-Z0-9]{2,})$`), wants: "here, channel, or the id of a user (U…) or group (S…)"},
}

// problem says what is wrong with a text that is not empty, or nothing.
func (f format) problem(text string) string {
	if (f.pattern == nil || f.pattern.MatchString(text)) && (f.check == nil || f.check(text)) {
		return ""
	}
	if f.secret {
		return "must be " + f.wants
	}
	return "must be " + f.wants + ", not " + quote(text)
}

func isPlainURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Hostname() != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

func isLink(text string) bool {
	u, err := url.Parse(strings.ReplaceAll(text, "{run}", "run"))
	return err == nil && u.Hostname() != "" && u.User == nil
}

func isGlob(text string) bool {
	_, err := path.Match(text, "")
	return err == nil
}
