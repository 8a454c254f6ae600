package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/common/model"
)

// parse reads one word as the key's Go type and checks it. The second result says what is wrong, in
// words that follow the name of the setting, and never repeats a secret.
func (k *key) parse(text string) (any, string) {
	switch k.kind {
	case kindText:
		return text, k.checkText(text)
	case kindSecret:
		return Secret(text), ""
	case kindBool:
		if text != "true" && text != "false" {
			return nil, k.mustBe(text)
		}
		return text == "true", ""
	case kindInteger:
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, k.mustBe(text)
		}
		return n, k.checkLimits(float64(n))
	case kindNumber:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return nil, k.mustBe(text)
		}
		return n, k.checkLimits(n)
	case kindDuration:
		d, err := parseDuration(text)
		if err != nil {
			return nil, k.mustBe(text)
		}
		return d, k.checkLimits(d.Seconds())
	case kindTime:
		t, err := parseTime(text)
		if err != nil {
			return nil, k.mustBe(text)
		}
		return t, ""
	default:
		return nil, "cannot be written as one word"
	}
}

func (k *key) mustBe(text string) string {
	return fmt.Sprintf("must be %s, not %s", k.kind, quote(text))
}

func (k *key) checkText(text string) string {
	switch {
	case text == "" && (k.required || k.enum != nil):
		return "must not be empty"
	case text == "":
		return "" // as good as not set
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unprintable):
		return fmt.Sprintf("contains characters that cannot be printed: %s", quote(text))
	case k.enum != nil && !slices.Contains(k.enum, text):
		return fmt.Sprintf("must be one of %s, not %s", strings.Join(k.enum, ", "), quote(text))
	}
	return formats[k.format].problem(text)
}

// unprintable finds control characters, line breaks and marks that turn the direction of text:
// names end up in terminals, tickets and messages.
func unprintable(r rune) bool { return !unicode.IsPrint(r) }

func (k *key) checkLimits(n float64) string {
	show := func(limit float64) string {
		if k.kind == kindDuration {
			return durationText(time.Duration(limit * float64(time.Second)))
		}
		return strconv.FormatFloat(limit, 'f', -1, 64)
	}
	switch {
	case k.min != nil && n < *k.min:
		return "must be at least " + show(*k.min)
	case k.max != nil && n > *k.max:
		return "must be at most " + show(*k.max)
	}
	return ""
}

// parseDuration reads Prometheus' notation, which knows days and weeks: "90s", "1h30m", "14d".
func parseDuration(text string) (time.Duration, error) {
	d, err := model.ParseDuration(text)
	return time.Duration(d), err
}

// durationText writes what parseDuration reads. Weeks are written as days, as people say them.
func durationText(d time.Duration) string {
	const day = 24 * time.Hour
	if d > 0 && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return model.Duration(d).String()
}

// parseTime reads an instant, or a day, which means its last second: "until Friday" includes Friday.
func parseTime(text string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day.Add(24*time.Hour - time.Second), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	return t.UTC(), err
}

// quote shortens what somebody else wrote and makes it printable.
func quote(text string) string {
	if runes := []rune(text); len(runes) > 60 {
		text = string(runes[:60]) + "…"
	}
	return strconv.Quote(text)
}
