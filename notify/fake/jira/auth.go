package fakejira

import (
	"net/http"
	"slices"
	"strings"

	"ipamaudit/notify/fake/wire"
)

// login is what the server makes of a request's credentials.
type login struct {
	reason  string  // X-Seraph-Loginreason of the answer
	refusal *answer // the request goes no further
}

const (
	loginFailed = "AUTHENTICATED_FAILED"
	loginOK     = "OK"
)

// login checks the credentials and marks c as anonymous when they do not hold.
// Data Center refuses a bad token. Cloud does not: it goes on as anonymous, and
// an anonymous search is a 200 with nothing in it (MrRefactoring/jira.js#418,
// n8n-io/n8n#16325).
func (s *Server) login(c *call) login {
	none := c.Header.Get("Authorization") == ""
	good := !none && s.credentialsHold(c.Request) && !s.expired && wire.FaultFrom(c.Context()) != ExpiredToken
	switch {
	case good && s.cfg.Flavour == Cloud:
		return login{}
	case good:
		return login{reason: loginOK}
	case s.cfg.Flavour == DataCenter && !none:
		a := failed(http.StatusUnauthorized, "You are not authenticated. Authentication required to perform this operation.")
		a.header = map[string]string{"X-Seraph-Loginreason": loginFailed, "WWW-Authenticate": "OAuth realm=\"https%3A%2F%2Fjira\""}
		return login{refusal: &a}
	}
	c.anonymous = true
	if none {
		return login{}
	}
	return login{reason: loginFailed}
}

func (s *Server) credentialsHold(r *http.Request) bool {
	if s.cfg.Flavour == DataCenter {
		token, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		return isBearer && token != "" && (s.cfg.Token == "" || token == s.cfg.Token)
	}
	user, token, isBasic := r.BasicAuth()
	return isBasic && token != "" && (s.cfg.Token == "" || user == s.cfg.User && token == s.cfg.Token)
}

// The permissions that matter to a client that files tickets.
const (
	BrowseProjects    = "BROWSE_PROJECTS"
	CreateIssues      = "CREATE_ISSUES"
	EditIssues        = "EDIT_ISSUES"
	AddComments       = "ADD_COMMENTS"
	EditOwnComments   = "EDIT_OWN_COMMENTS"
	TransitionIssues  = "TRANSITION_ISSUES"
	ResolveIssues     = "RESOLVE_ISSUES"
	LinkIssues        = "LINK_ISSUES"
	CreateAttachments = "CREATE_ATTACHMENTS"
	AssignIssues      = "ASSIGN_ISSUES"
)

func permissions() []string {
	return []string{
		BrowseProjects, CreateIssues, EditIssues, AddComments, EditOwnComments,
		TransitionIssues, ResolveIssues, LinkIssues, CreateAttachments, AssignIssues,
		"ADMINISTER", "ADMINISTER_PROJECTS", "ASSIGNABLE_USER", "CLOSE_ISSUES", "DELETE_ISSUES",
		"EDIT_ALL_COMMENTS", "SCHEDULE_ISSUES", "SET_ISSUE_SECURITY", "MANAGE_WATCHERS",
	}
}

// notTheBots are permissions that a bot account does not have anywhere.
func notTheBots() []string {
	return []string{"ADMINISTER", "ADMINISTER_PROJECTS", "DELETE_ISSUES", "EDIT_ALL_COMMENTS", "SET_ISSUE_SECURITY"}
}

func (s *Server) may(c *call, p *project, permission string) bool {
	return !c.anonymous && !slices.Contains(p.Denied, permission) && !slices.Contains(notTheBots(), permission)
}

// visible finds an issue for a request, or the answer when it is not to be seen.
func (s *Server) visible(c *call, ref string) (*Issue, *answer) {
	if i := s.find(ref); i != nil && s.may(c, s.project(i.Project), BrowseProjects) {
		return i, nil
	}
	a := failed(http.StatusNotFound, "Issue does not exist or you do not have permission to see it.")
	if s.cfg.Flavour == DataCenter {
		a = failed(http.StatusNotFound, "Issue Does Not Exist")
	}
	return nil, &a
}
