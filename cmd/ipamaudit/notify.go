package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"ipamaudit/audit"
	"ipamaudit/audit/config"
	"ipamaudit/checks"
	"ipamaudit/notify"
	"ipamaudit/notify/jira"
	"ipamaudit/notify/slack"
)

// finish remembers the run and, with --notify, tells people.
func (o *runOptions) finish(ctx context.Context, a *app, rep *audit.Report, next *audit.State, m *memory) error {
	if !o.notify {
		if o.config.Slack.Enabled { // the next run that tells somebody compares with this one
			notify.Remember(rep, next, digestPolicy(o.config), a.now())
		}
		if err := m.save(ctx, next); err != nil {
			return &exitError{audit.ExitUsage, fmt.Errorf("the state was not saved: %w", err)}
		}
		return nil
	}
	out, runErr := notify.Run(ctx, rep, next, m.orNowhere(), o.policy(a), notifyClients(o.config, o.log), o.log)
	if o.dryRun {
		w := a.out
		for _, s := range o.specs {
			// The report has stdout to itself unless it is for people, too.
			if s.Path == "" && (len(o.outputs) > 0 || s.Format != "table") {
				w = a.err
			}
		}
		if _, err := fmt.Fprint(w, "\n", out.Plan); err != nil {
			return err
		}
	}
	for _, n := range out.Notices {
		o.log.Warn("notice", "text", n)
	}
	if o.dryRun {
		return runErr
	}
	for _, t := range out.Tickets {
		if t.Action.Writes() || t.Error != "" {
			o.log.Info("ticket", "cluster", t.Cluster, "check", t.Check, "action", string(t.Action), "key", t.Key, "url", t.URL, "why", t.Why, "error", t.Error)
		}
	}
	for _, msg := range out.Messages {
		o.log.Info("message", "channel", msg.Channel, "part", msg.Part, "action", msg.Action, "permalink", msg.Permalink, "error", msg.Error)
	}
	return runErr
}

func (m *memory) save(ctx context.Context, s *audit.State) error {
	if m.store == nil || !m.writes {
		return nil
	}
	return m.store.Save(ctx, s)
}

// orNowhere is the store, or one that forgets where none is configured.
func (m *memory) orNowhere() audit.Store {
	if m.store == nil {
		return nowhere{}
	}
	return m.store
}

// nowhere keeps nothing.
type nowhere struct{}

func (nowhere) Load(context.Context) (*audit.State, error) { return audit.NewState(), nil }
func (nowhere) Save(context.Context, *audit.State) error   { return nil }
func (nowhere) Lock(context.Context) (func(), error)       { return func() {}, nil }
func (nowhere) String() string                             { return "nowhere" }

// policy maps the configuration to how people are told.
func (o *runOptions) policy(a *app) notify.Options {
	c := o.config
	opts := notify.Options{DryRun: o.dryRun, Now: a.now}
	if c.Jira.Enabled {
		opts.Tickets = ticketPolicy(c)
		opts.Tickets.Adopt = o.adopt
	}
	if c.Slack.Enabled {
		opts.Digest = digestPolicy(c)
	}
	return opts
}

func ticketPolicy(c *config.Config) notify.TicketPolicy {
	j := &c.Jira
	least, _ := checks.ParseSeverity(j.MinSeverity)
	p := notify.TicketPolicy{
		Project: func(r *audit.ClusterReport, check string, s checks.Severity) string {
			return c.ProjectOf(clusterNamed(c, r.Name), check, string(s))
		},
		IssueType:  j.IssueType,
		Priorities: map[checks.Severity]string{},
		Components: j.Components, Labels: j.Labels, Assignee: j.Assignee, Fields: map[string]any{}, RunURL: j.RunURL,
		MinSeverity: least, After: c.TicketAfterRuns, MaxNew: j.MaxNewTicketsPerRun,
		Reopen: notify.ReopenMode(j.Reopen), ReopenWindow: j.ReopenWithin, MaxReopens: j.MaxReopens, ReopenVia: j.ReopenTransition,
		WontFix: j.WontFixResolutions, AcceptedLabel: j.AcceptedLabel,
		CloseVia: j.ResolveTransition, CloseResolution: j.Resolution,
	}
	for _, s := range checks.Severities() {
		if name := j.Priorities.Of(string(s)); name != "" {
			p.Priorities[s] = name
		}
	}
	if j.Parent != "" {
		p.Fields["parent"] = map[string]any{"key": j.Parent}
	}
	for _, f := range j.Fields {
		p.Fields[f.ID] = f.Value
	}
	if j.AttachList {
		p.AttachOver = notify.MaxRows
	}
	if j.MaxReopens == 0 {
		p.MaxReopens = -1 // no limit
	}
	switch j.OnResolve {
	case "none":
		p.ResolveAfter = -1
	case "comment":
		p.ResolveAfter = j.ResolveAfterCleanRuns
	case "transition":
		p.CloseAfter = j.ResolveAfterCleanRuns
	}
	return p
}

func digestPolicy(c *config.Config) notify.DigestPolicy {
	s := &c.Slack
	least, _ := checks.ParseSeverity(s.MinSeverity)
	p := notify.DigestPolicy{
		Channel: func(r *audit.ClusterReport, check string, sev checks.Severity) string {
			return c.ChannelOf(clusterNamed(c, r.Name), check, string(sev))
		},
		MinSeverity: least, Always: !s.OnlyChanges, Mentions: map[checks.Severity]string{},
	}
	for _, sev := range checks.Severities() {
		if who := mentions(s.Mentions.Of(string(sev))); who != "" {
			p.Mentions[sev] = who
		}
	}
	if day, ok := weekdays[s.Heartbeat]; ok {
		p.Heartbeat = notify.EveryWeek(day)
	} else {
		p.Heartbeat = func(time.Time, time.Time) bool { return false }
	}
	return p
}

var weekdays = map[string]time.Weekday{
	"sunday": time.Sunday, "monday": time.Monday, "tuesday": time.Tuesday, "wednesday": time.Wednesday,
	"thursday": time.Thursday, "friday": time.Friday, "saturday": time.Saturday,
}

// mentions writes people, groups and channels as Slack does. The
// configuration has checked their form.
func mentions(who []string) string {
	out := make([]string, 0, len(who))
	for _, w := range who {
		switch {
		case w == "here" || w == "channel":
			out = append(out, "<!"+w+">")
		case strings.HasPrefix(w, "S"):
			out = append(out, "<!subteam^"+w+">")
		default:
			out = append(out, "<@"+w+">")
		}
	}
	return strings.Join(out, " ")
}

func clusterNamed(c *config.Config, name string) config.Cluster {
	for _, cl := range c.Clusters {
		if cl.Name == name {
			return cl
		}
	}
	return c.NewCluster(name)
}

// notifyClients makes the clients for what is enabled. Tokens are read here,
// from their files, anew for every run.
func notifyClients(c *config.Config, log *slog.Logger) notify.Clients {
	var clients notify.Clients
	if c.Jira.Enabled {
		if t, err := jiraClient(&c.Jira, log); err != nil {
			clients.NoTracker = err
		} else {
			clients.Tracker = t
		}
	}
	if c.Slack.Enabled {
		if m, err := slackClient(&c.Slack, log); err != nil {
			clients.NoMessenger = err
		} else {
			clients.Messenger = m
		}
	}
	return clients
}

func jiraClient(j *config.Jira, log *slog.Logger) (notify.Tracker, error) {
	token, err := j.Credential().Read()
	if err != nil {
		return nil, fmt.Errorf("jira: %w", err)
	}
	roots, err := certPool(j.CAFile)
	if err != nil {
		return nil, fmt.Errorf("jira.caFile: %w", err)
	}
	flavour := jira.DataCenter
	if j.IsCloud() {
		flavour = jira.Cloud
	}
	return jira.New(jira.Options{
		Flavour: flavour, BaseURL: j.APIBaseURL, BrowseURL: j.BrowseBaseURL, User: j.Username, Token: token,
		FingerprintField: j.FingerprintField,
		Transport: notify.NewTransport(notify.TransportOptions{
			Timeout: j.Timeout, Rate: j.RequestsPerSecond, RootCAs: roots, Secrets: notify.SecretForms(j.Username, token), Log: log, Version: buildVersion(),
		}),
	})
}

func slackClient(s *config.Slack, log *slog.Logger) (notify.Messenger, error) {
	roots, err := certPool(s.CAFile)
	if err != nil {
		return nil, fmt.Errorf("slack.caFile: %w", err)
	}
	if s.WebhookCredential().IsSet() && !s.TokenCredential().IsSet() {
		url, err := s.WebhookCredential().Read()
		if err != nil {
			return nil, fmt.Errorf("slack: %w", err)
		}
		return slack.NewWebhook(url, notify.NewTransport(notify.TransportOptions{
			Timeout: s.Timeout, RootCAs: roots, Secrets: slack.WebhookSecrets(url), Log: log, Version: buildVersion(),
		}))
	}
	token, err := s.TokenCredential().Read()
	if err != nil {
		return nil, fmt.Errorf("slack: %w", err)
	}
	return slack.New(slack.Options{
		Token: token, APIURL: s.APIURL,
		Transport: notify.NewTransport(notify.TransportOptions{
			Timeout: s.Timeout, RootCAs: roots, Secrets: notify.SecretForms("", token), Log: log, Version: buildVersion(),
		}),
	})
}

// certPool is the system's authorities and those of the file; nil is the system's.
func certPool(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return pool, nil
}

// notifiers proves that tickets and digests could be written.
func (d *diagnosis) notifiers(ctx context.Context, c *config.Config) {
	log := d.a.logger(c.Log, true)
	if c.Jira.Enabled {
		fmt.Fprintln(d.a.out, "jira")
		t, err := jiraClient(&c.Jira, log)
		for _, project := range projects(c) {
			if err == nil {
				err = t.Preflight(ctx, ticketPolicy(c).Blank(project))
			}
			if err != nil {
				d.gap(&d.notify, "jira", "%s", oneLine(err))
				break
			}
			d.good("issues can be found, created and edited in %s", project)
		}
	}
	if c.Slack.Enabled {
		fmt.Fprintln(d.a.out, "slack")
		m, err := slackClient(&c.Slack, log)
		if err == nil {
			err = m.Preflight(ctx)
		}
		if err != nil {
			d.gap(&d.notify, "slack", "%s", oneLine(err))
		} else {
			d.good("%s accepts the credentials", m)
		}
	}
}

func projects(c *config.Config) []string {
	var out []string
	add := func(p string) {
		for _, have := range out {
			if have == p {
				return
			}
		}
		if p != "" {
			out = append(out, p)
		}
	}
	for _, cl := range c.Clusters {
		add(c.Jira.ProjectOf(cl))
	}
	for _, r := range c.Routing {
		add(r.Project)
	}
	if len(c.Clusters) == 0 {
		add(c.Jira.Project)
	}
	return out
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
