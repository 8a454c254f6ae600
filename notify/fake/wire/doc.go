// Package wire is what the fake Jira and the fake Slack have in common: a log
// of every request with its secrets taken out, faults on demand, and a listener
// on loopback. It knows nothing about either vendor.
package wire
