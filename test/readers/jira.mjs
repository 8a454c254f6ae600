// Reads everything of a fake Jira with jira.js, which checks each answer against
// its own schemas, and prints what it understood: node jira.mjs URL EMAIL TOKEN PROJECT LABEL
import { createCloudClient } from 'jira.js/cloud';

const [host, email, apiToken, project, label] = process.argv.slice(2);
const mismatches = [];
const jira = createCloudClient({
  host,
  auth: { type: 'basic', email, apiToken },
  onSchemaMismatch: ({ endpoint, issues }) => {
    // jira.js speaks v3, where a comment is a document; ours are v2's, wiki text.
    const unexpected = issues.filter((i) => !(/\/comment$/.test(endpoint) && /(^|\.)body$/.test(i.path)));
    if (unexpected.length > 0) mismatches.push(`${endpoint}: ${JSON.stringify(unexpected)}`);
  },
});

const me = await jira.myself.getCurrentUser();
await jira.serverInfo.getServerInfo();
await jira.permissions.getMyPermissions({ projectKey: project, permissions: 'BROWSE_PROJECTS,CREATE_ISSUES' });
const types = await jira.issues.getCreateIssueMetaIssueTypes({ projectIdOrKey: project });
for (const t of types.issueTypes ?? []) {
  await jira.issues.getCreateIssueMetaIssueTypeId({ projectIdOrKey: project, issueTypeId: t.id });
}

const jql = `labels = "${label}" ORDER BY created ASC`;
const keys = [];
for (let nextPageToken; ; ) {
  const page = await jira.issueSearch.searchAndReconsileIssuesUsingJqlPost({ jql, maxResults: 2, fields: ['summary', 'labels', 'status'], nextPageToken });
  for (const i of page.issues ?? []) keys.push(i.key);
  nextPageToken = page.nextPageToken;
  if (!nextPageToken) break;
}

const issues = [];
for (const key of keys) {
  const i = await jira.issues.getIssue({ issueIdOrKey: key });
  const comments = await jira.issueComments.getComments({ issueIdOrKey: key });
  await jira.issues.getTransitions({ issueIdOrKey: key, expand: 'transitions.fields' });
  await jira.issueProperties.getIssuePropertyKeys({ issueIdOrKey: key });
  issues.push({
    id: i.id, key: i.key, summary: i.fields.summary, labels: i.fields.labels,
    done: i.fields.status.statusCategory.key === 'done', resolution: i.fields.resolution?.name ?? '',
    priority: i.fields.priority?.name ?? '', attachments: (i.fields.attachment ?? []).map((a) => a.filename),
    comments: (comments.comments ?? []).length,
  });
}

// It also files one: what our client did not write, our client can read.
const made = await jira.issues.createIssue({ fields: { project: { key: project }, issuetype: { name: 'Task' }, summary: 'filed by jira.js', labels: [label, 'foreign'] } });
await jira.issues.editIssue({ issueIdOrKey: made.key, fields: { summary: 'edited by jira.js' } });
await jira.issueRemoteLinks.createOrUpdateRemoteIssueLink({ issueIdOrKey: made.key, globalId: 'g', object: { url: 'https://example.com/', title: 'x' } });
await jira.issueProperties.setIssueProperty({ issueIdOrKey: made.key, propertyKey: 'p', body: { a: 1 } }).catch((e) => mismatches.push('set property: ' + e.message));
const t = (await jira.issues.getTransitions({ issueIdOrKey: made.key })).transitions.find((x) => x.to.statusCategory.key === 'done');
await jira.issues.doTransition({ issueIdOrKey: made.key, transition: { id: t.id } });

console.log(JSON.stringify({ me: me.accountId, issues, made: made.key, mismatches }, null, 1));
