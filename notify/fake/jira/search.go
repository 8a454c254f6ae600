package fakejira

import (
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// searchRequest is a search of either kind, from a query or a body.
type searchRequest struct {
	JQL             string        `json:"jql"`
	StartAt         int           `json:"startAt"`
	MaxResults      *int          `json:"maxResults"`
	NextPageToken   string        `json:"nextPageToken"`
	Fields          []string      `json:"fields"`
	Properties      []string      `json:"properties"`
	ReconcileIssues []json.Number `json:"reconcileIssues"`
}

func readSearch(c *call) (searchRequest, *answer) {
	var in searchRequest
	if c.Method == http.MethodPost {
		bad := c.decode(&in)
		return in, bad
	}
	q := c.URL.Query()
	in.JQL, in.NextPageToken = q.Get("jql"), q.Get("nextPageToken")
	in.StartAt, _ = strconv.Atoi(q.Get("startAt"))
	if raw := q.Get("maxResults"); raw != "" {
		n, err := strconv.Atoi(raw)
		if err != nil {
			a := failed(http.StatusBadRequest, "maxResults must be a number")
			return in, &a
		}
		in.MaxResults = &n
	}
	in.Fields, in.Properties = splitList(q["fields"]), splitList(q["properties"])
	for _, id := range splitList(q["reconcileIssues"]) {
		in.ReconcileIssues = append(in.ReconcileIssues, json.Number(id))
	}
	return in, nil
}

// searchRemoved is what Cloud answers since 2025 (CHANGE-2046).
func (s *Server) searchRemoved(*call) answer {
	return failed(http.StatusGone, "The requested API has been removed. Please migrate to the /rest/api/3/search/jql API. "+
		"A full migration guideline is available at https://developer.atlassian.com/changelog/#CHANGE-2046")
}

// searchClassic is Data Center's search: offsets and a total.
func (s *Server) searchClassic(c *call) answer {
	in, bad := readSearch(c)
	if bad != nil {
		return *bad
	}
	query, err := s.compile(in.JQL, c)
	if err != nil {
		return failed(http.StatusBadRequest, err.Error())
	}
	hits := query.run(s.indexed(c, nil))
	limit := 50
	if in.MaxResults != nil {
		limit = min(max0(*in.MaxResults), 1000)
	}
	limit = s.capPage(limit)
	start := min(max0(in.StartAt), len(hits))
	views := s.views(hits[start:min(start+limit, len(hits))], parseFields(in.Fields, "*navigable"), in.Properties)
	return ok(map[string]any{
		"expand": "schema,names", "startAt": start, "maxResults": limit, "total": len(hits), "issues": views,
	})
}

// searchJQL is Cloud's search: tokens, no total, ids alone unless asked.
func (s *Server) searchJQL(c *call) answer {
	in, bad := readSearch(c)
	if bad != nil {
		return *bad
	}
	fields := parseFields(in.Fields, "id")
	limit := 50
	if in.MaxResults != nil {
		limit = *in.MaxResults
	}
	switch {
	case limit < 1 || limit > 5000:
		return failed(http.StatusBadRequest, "The maxResults parameter must be between 1 and 5000.")
	case len(in.Properties) > 5:
		return failed(http.StatusBadRequest, "The number of properties must not exceed 5.")
	case len(in.ReconcileIssues) > 50:
		return failed(http.StatusBadRequest, "The number of reconcileIssues must not exceed 50.")
	}
	query, err := s.compile(in.JQL, c)
	if err != nil {
		return failed(http.StatusBadRequest, err.Error())
	}
	if !query.bounded {
		return failed(http.StatusBadRequest, "Unbounded JQL queries are not allowed here. Please add a search restriction to your query.")
	}
	var reconcile []string
	for _, id := range in.ReconcileIssues {
		if _, err := id.Int64(); err != nil {
			return failed(http.StatusBadRequest, "reconcileIssues must be issue ids, not '"+id.String()+"'.")
		}
		reconcile = append(reconcile, id.String())
	}
	start, known := openToken(in.NextPageToken, in.JQL)
	if !known {
		return failed(http.StatusBadRequest, "The provided nextPageToken is invalid or has expired.")
	}
	if !fields.onlyID() {
		limit = min(limit, 100) // "to manage page size, the API may return fewer"
	}
	limit = s.capPage(limit)
	hits := query.run(s.indexed(c, reconcile))
	start = min(start, len(hits))
	end := min(start+limit, len(hits))
	body := map[string]any{"issues": s.views(hits[start:end], fields, in.Properties), "isLast": end == len(hits)}
	if end < len(hits) {
		body["nextPageToken"] = sealToken(end, in.JQL)
	}
	return ok(body)
}

func (s *Server) approximateCount(c *call) answer {
	in, bad := readSearch(c)
	if bad != nil {
		return *bad
	}
	query, err := s.compile(in.JQL, c)
	if err != nil {
		return failed(http.StatusBadRequest, err.Error())
	}
	return ok(map[string]any{"count": len(query.run(s.indexed(c, nil)))})
}

func (s *Server) views(hits []*Issue, fields fieldSet, properties []string) []any {
	rows := []any{}
	for _, i := range hits {
		rows = append(rows, s.issueView(i, fields, properties))
	}
	return rows
}

// A token is an offset that belongs to one query; clients must not read it.
func sealToken(offset int, jql string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(offset) + ":" + fingerprint(jql)))
}

func openToken(token, jql string) (offset int, ok bool) {
	if token == "" {
		return 0, true
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return 0, false
	}
	number, owner, _ := strings.Cut(string(raw), ":")
	offset, err = strconv.Atoi(number)
	return offset, err == nil && owner == fingerprint(jql)
}

func fingerprint(text string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return strconv.FormatUint(h.Sum64(), 36)
}

// run returns the matching issues in the query's order.
func (q query) run(issues []*Issue) []*Issue {
	hits := slices.DeleteFunc(slices.Clone(issues), func(i *Issue) bool { return !q.matches(i) })
	slices.SortStableFunc(hits, q.compare)
	return hits
}
