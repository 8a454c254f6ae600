package fakejira

import "net/http"

const api = "rest/api/2/"

// routes is the REST API of a flavour, the more special patterns first.
func routes(f Flavour) []route {
	common := []route{
		{http.MethodGet, api + "serverInfo", (*Server).serverInfo},
		{http.MethodGet, api + "myself", (*Server).myself},
		{http.MethodGet, api + "mypermissions", (*Server).myPermissions},
		{http.MethodGet, api + "priority", (*Server).priorities},
		{http.MethodGet, api + "resolution", (*Server).resolutions},
		{http.MethodGet, api + "project/*", (*Server).getProject},
		{http.MethodGet, api + "issue/createmeta/*/issuetypes", (*Server).createMetaTypes},
		{http.MethodGet, api + "issue/createmeta/*/issuetypes/*", (*Server).createMetaFields},
		{http.MethodPost, api + "issue", (*Server).createIssue},
		{http.MethodGet, api + "issue/*", (*Server).getIssue},
		{http.MethodPut, api + "issue/*", (*Server).editIssue},
		{http.MethodGet, api + "issue/*/comment", (*Server).listComments},
		{http.MethodPost, api + "issue/*/comment", (*Server).addComment},
		{http.MethodGet, api + "issue/*/comment/*", (*Server).getComment},
		{http.MethodPut, api + "issue/*/comment/*", (*Server).editComment},
		{http.MethodGet, api + "issue/*/transitions", (*Server).listTransitions},
		{http.MethodPost, api + "issue/*/transitions", (*Server).doTransition},
		{http.MethodGet, api + "issue/*/remotelink", (*Server).listRemoteLinks},
		{http.MethodPost, api + "issue/*/remotelink", (*Server).putRemoteLink},
		{http.MethodGet, api + "issue/*/properties", (*Server).listProperties},
		{http.MethodGet, api + "issue/*/properties/*", (*Server).getProperty},
		{http.MethodPut, api + "issue/*/properties/*", (*Server).putProperty},
		{http.MethodPost, api + "issue/*/attachments", (*Server).attach},
	}
	if f == DataCenter {
		return append([]route{
			{http.MethodGet, api + "search", (*Server).searchClassic},
			{http.MethodPost, api + "search", (*Server).searchClassic},
		}, common...)
	}
	return append([]route{
		{http.MethodGet, api + "search", (*Server).searchRemoved},
		{http.MethodPost, api + "search", (*Server).searchRemoved},
		{http.MethodGet, api + "search/jql", (*Server).searchJQL},
		{http.MethodPost, api + "search/jql", (*Server).searchJQL},
		{http.MethodPost, api + "search/approximate-count", (*Server).approximateCount},
		{http.MethodPost, api + "issue/bulkfetch", (*Server).bulkFetch},
	}, common...)
}
