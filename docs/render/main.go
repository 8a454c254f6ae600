// Command render draws what "go run ./fixtures/demo -keep DIR" kept as Slack and
// Jira show it, roughly, for the pictures in docs/img:
//
//	go run ./docs/render -o page.html night2.json            # the digest
//	go run ./docs/render -ticket NET-1 -o page.html night1.json
//	chromium --headless --no-sandbox --screenshot=out.png --window-size=900,900 page.html
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"os"
	"regexp"
	"strings"
)

type kept struct {
	Messages []struct {
		Reply  bool    `json:"reply"`
		Blocks []block `json:"blocks"`
	} `json:"messages"`
	Tickets []struct {
		Key, Summary, Status, Priority, Description string
		Labels, Comments                            []string
	} `json:"tickets"`
}

type block struct {
	Type     string `json:"type"`
	Text     text   `json:"text"`
	Elements []text `json:"elements"`
}

type text struct {
	Text string `json:"text"`
}

func main() {
	out := flag.String("o", "page.html", "`FILE` to write")
	ticket := flag.String("ticket", "", "`KEY` of the ticket to draw; empty: the last digest")
	flag.Parse()
	if err := run(flag.Arg(0), *ticket, *out); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(in, key, out string) error {
	raw, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	var k kept
	if err := json.Unmarshal(raw, &k); err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	body := ""
	if key == "" {
		for _, m := range k.Messages {
			if !m.Reply {
				body = slackMessage(m.Blocks)
			}
		}
	}
	for _, t := range k.Tickets {
		if t.Key == key {
			body = fmt.Sprintf(`<div class=jira><div class=key>Networking / %s</div><h1>%s</h1><div><span class=status>%s</span> <span class=tag>priority %s</span>`,
				t.Key, html.EscapeString(t.Summary), html.EscapeString(t.Status), html.EscapeString(t.Priority))
			for _, l := range t.Labels {
				body += ` <span class=tag>` + html.EscapeString(l) + `</span>`
			}
			body += `</div>` + wiki(t.Description)
			for _, c := range t.Comments {
				body += `<div class=comment><b>ipam-bot</b> commented` + wiki(c) + `</div>`
			}
			body += `</div>`
		}
	}
	if body == "" {
		return fmt.Errorf("%s holds nothing of that", in)
	}
	return os.WriteFile(out, []byte("<!doctype html><meta charset=utf-8><style>"+style+"</style>"+body), 0o644)
}

const style = `
body{margin:0;background:#fff;color:#1d1c1d;font:15px/1.46 "Lato","DejaVu Sans",sans-serif}
.slack{display:flex;gap:8px;padding:14px 18px;max-width:840px}.slack .face{flex:none;width:36px;height:36px;border-radius:6px;background:#1264a3;color:#fff;text-align:center;line-height:36px;font-weight:bold}
.slack .who{font-weight:bold}.app{background:#ececec;color:#616061;font-size:10px;padding:1px 3px;border-radius:2px}.time{color:#616061;font-size:12px;font-weight:normal}
.slack h2{font-size:18px;margin:8px 0 2px}.section{margin:6px 0;white-space:pre-wrap}.context{color:#616061;font-size:12px;margin-top:6px}
code{font:12px "DejaVu Sans Mono",monospace;color:#c01343;background:#f8f8f8;border:1px solid #e4e4e4;border-radius:3px;padding:1px 3px}
pre{font:12px/1.5 "DejaVu Sans Mono",monospace;background:#f8f8f8;border:1px solid #ddd;border-radius:4px;padding:8px;margin:4px 0;white-space:pre-wrap}
a{color:#1264a3;text-decoration:none}.mention{background:#fcf2cf;color:#8a6d00;padding:0 2px;border-radius:3px}
.jira{padding:20px 26px;max-width:850px;font:14px/1.45 "DejaVu Sans",sans-serif;color:#172b4d}.jira h1{font-size:21px;margin:4px 0 10px}.jira h3{font-size:16px;margin:18px 0 6px}
.key{color:#626f86}.status{background:#e9f2ff;color:#0055cc;font-weight:bold;font-size:11px;padding:2px 5px;border-radius:3px;text-transform:uppercase}.tag{background:#f1f2f4;border-radius:3px;padding:2px 5px;font-size:12px}
table{border-collapse:collapse;margin:6px 0}td,th{border:1px solid #c1c7d0;padding:4px 8px;text-align:left;vertical-align:top;font-size:13px}th{background:#f4f5f7}
.jira p{margin:7px 0}.mono{font:12px "DejaVu Sans Mono",monospace;background:#f4f5f7;padding:1px 3px;border-radius:3px}.comment{border-top:1px solid #ddd;margin-top:14px;padding-top:8px}`

func slackMessage(blocks []block) string {
	b := `<div class=slack><div class=face>IP</div><div><div class=who>ipam-audit <span class=app>APP</span> <span class=time>08:00</span></div>`
	for _, bl := range blocks {
		switch bl.Type {
		case "header":
			b += "<h2>" + html.EscapeString(bl.Text.Text) + "</h2>"
		case "section":
			b += "<div class=section>" + mrkdwn(bl.Text.Text) + "</div>"
		case "context":
			for _, e := range bl.Elements {
				b += "<div class=context>" + mrkdwn(e.Text) + "</div>"
			}
		}
	}
	return b + "</div></div>"
}

// emoji are those that digests use.
var emoji = strings.NewReplacer(":rotating_light:", "🚨", ":warning:", "⚠️", ":new:", "🆕", ":chart_with_upwards_trend:", "📈",
	":chart_with_downwards_trend:", "📉", ":white_check_mark:", "✅", ":grey_question:", "❔", ":bar_chart:", "📊",
	":large_green_circle:", "🟢", ":white_circle:", "⚪")

// mrkdwn is escaped already, as Slack wants it.
func mrkdwn(s string) string {
	var b strings.Builder
	for i, part := range strings.Split(s, "```") {
		if i%2 == 1 {
			b.WriteString("<pre>" + strings.Trim(part, "\n") + "</pre>")
			continue
		}
		part = regexp.MustCompile("`([^`\n]+)`").ReplaceAllString(strings.Trim(part, "\n"), "<code>$1</code>")
		part = regexp.MustCompile(`<(https?://[^|>]+)\|([^>]+)>`).ReplaceAllString(part, `<a href="$1">$2</a>`)
		part = regexp.MustCompile(`<!(here|channel)>`).ReplaceAllString(part, `<span class=mention>@$1</span>`)
		part = regexp.MustCompile(`\*([^*\n]+)\*`).ReplaceAllString(part, "<b>$1</b>")
		b.WriteString(emoji.Replace(part))
	}
	return b.String()
}

// wiki draws as much of Jira's markup as tickets use.
func wiki(s string) string {
	var b strings.Builder
	code, table := false, false
	for line := range strings.SplitSeq(s, "\n") {
		if isRow := strings.HasPrefix(line, "|") && !code; isRow != table {
			table = isRow
			b.WriteString(map[bool]string{true: "<table>", false: "</table>"}[isRow])
		}
		switch {
		case line == "{code:bash}":
			code = true
			b.WriteString("<pre>")
		case line == "{code}":
			code = false
			b.WriteString("</pre>")
		case code:
			b.WriteString(html.EscapeString(line) + "\n")
		case table:
			b.WriteString("<tr>" + row(line) + "</tr>")
		case strings.HasPrefix(line, "h3. "):
			b.WriteString("<h3>" + inline(line[4:]) + "</h3>")
		case line != "":
			b.WriteString("<p>" + inline(line) + "</p>")
		}
	}
	if table {
		b.WriteString("</table>")
	}
	return b.String()
}

var cellMark = regexp.MustCompile(`\|\|?`)

func row(line string) string {
	line = strings.ReplaceAll(line, `\|`, "\x00")
	var b strings.Builder
	marks := cellMark.FindAllStringIndex(line, -1)
	for i, m := range marks[:len(marks)-1] {
		tag := "td"
		if m[1]-m[0] == 2 {
			tag = "th"
		}
		b.WriteString("<" + tag + ">" + inline(strings.ReplaceAll(line[m[1]:marks[i+1][0]], "\x00", `\|`)) + "</" + tag + ">")
	}
	return b.String()
}

func inline(s string) string {
	s = html.EscapeString(s)
	s = strings.ReplaceAll(s, ` \\ `, "<br>")
	// Escaped characters step aside while the marks are drawn.
	var aside []string
	s = regexp.MustCompile(`\\([^\sA-Za-z0-9])`).ReplaceAllStringFunc(s, func(m string) string {
		aside = append(aside, m[1:])
		return fmt.Sprintf("\x01%d\x02", len(aside)-1)
	})
	s = regexp.MustCompile(`\{\{(.+?)\}\}`).ReplaceAllString(s, "<span class=mono>$1</span>")
	s = regexp.MustCompile(`\*([^*]+)\*`).ReplaceAllString(s, "<b>$1</b>")
	s = regexp.MustCompile(`(^|\s)_([^_]+)_`).ReplaceAllString(s, "$1<i>$2</i>")
	return regexp.MustCompile("\x01(\\d+)\x02").ReplaceAllStringFunc(s, func(m string) string {
		var n int
		_, _ = fmt.Sscanf(m, "\x01%d\x02", &n) // by the expression
		return aside[n]
	})
}
