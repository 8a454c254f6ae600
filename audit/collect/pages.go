package collect

import "ipamaudit/ipam"

// pageKey names the pages that belong together: the API server gives all pages
// of one list the same resource version.
type pageKey struct {
	resource ipam.Resource
	version  string
}

// pages are what was saved of one list that the API server answered in pages
// (kubectl get --raw '…?limit=500'; without --raw kubectl joins them itself).
type pages struct {
	// file holds a page after which more follow; empty for whole lists.
	file string
	// last says that the page after which nothing follows is there, too.
	last bool
	// have are the items of all pages, want what one of them says there are.
	have, want int
}

// paged notes a list of a file.
func (b *Builder) paged(r ipam.Resource, file string, e listEnd) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pages == nil {
		b.pages = map[pageKey]*pages{}
	}
	k := pageKey{r, e.ResourceVersion}
	p := b.pages[k]
	if p == nil {
		p = &pages{}
		b.pages[k] = p
	}
	p.have += e.Items
	if e.Continue == "" {
		p.last = true
		return
	}
	p.file = file
	p.want = max(p.want, e.Items+e.Remaining)
}

// checkPages fails the resources of which pages are missing: the objects on
// them would look as if they did not exist.
func (b *Builder) checkPages() {
	for k, p := range b.pages {
		if p.file != "" && (!p.last || p.have < p.want) {
			const why = "one page of a list, and not all of the others are there (leave out limit=)"
			b.Rejected(ipam.ObjectError{Where: p.file, Message: why})
			b.SetStatus(k.resource, ipam.Failed, p.file+": "+why)
		}
	}
}
