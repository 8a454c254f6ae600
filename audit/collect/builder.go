// Package collect fills an ipam.Snapshot: from saved files (a directory, an
// archive, a stream) or from a live API server, through one decoding path. It
// also writes what it read as a snapshot on disk that it reads back.
package collect

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ipamaudit/ipam"
)

// Builder puts a snapshot together, one raw object at a time. Add is for one
// goroutine at a time; whoever decodes side by side has a Builder for each part
// and merges them in order. The other methods are safe for concurrent use,
// except Finish.
type Builder struct {
	mu sync.Mutex

	blocks       bucket[ipam.Block]
	affinities   bucket[ipam.Affinity]
	handles      bucket[ipam.Handle]
	pools        bucket[ipam.Pool]
	reservations bucket[ipam.Reservation]
	configs      bucket[ipam.Config]
	infos        bucket[ipam.ClusterInfo]
	bgpConfigs   bucket[ipam.BGPConfig]
	peers        bucket[ipam.BGPPeer]
	filters      bucket[ipam.BGPFilter]
	felixConfigs bucket[ipam.FelixConfig]
	kubeCtrls    bucket[ipam.KubeControllers]
	calicoNodes  bucket[ipam.CalicoNode]
	nodes        bucket[ipam.Node]
	pods         bucket[ipam.Pod]
	namespaces   bucket[ipam.Namespace]
	services     bucket[ipam.Service]
	events       bucket[ipam.Event]
	workloads    bucket[ipam.Workload]
	cniConfigs   bucket[[]string]

	tallies  map[ipam.Resource]*tally
	statuses map[ipam.Resource]status
	// hints are statuses for resources of which nothing else was seen.
	hints   map[ipam.Resource]status
	details map[ipam.Resource]string
	// pages are the lists of files, by what belongs together.
	pages    map[pageKey]*pages
	newest   time.Time
	tables   []ipam.RouteTable
	source   string
	rejected []ipam.ObjectError
	ignored  int

	// tee receives every object that was used, in its reduced form.
	tee func(r ipam.Resource, w object)

	strings interner
	json    *fastJSON
	// scratch are the wire objects of the kinds that come by the hundred
	// thousand; see wire.
	scratch struct {
		pod      podObject
		block    blockObject
		affinity affinityObject
		handle   handleObject
	}
}

// wire returns a place to decode an object into: always the same one, unless
// the tee keeps what it is given.
func wire[T any](b *Builder, scratch *T) *T {
	if b.tee != nil {
		return new(T)
	}
	var zero T
	*scratch = zero
	return scratch
}

// NewBuilder returns an empty Builder.
func NewBuilder() *Builder {
	return &Builder{tallies: map[ipam.Resource]*tally{}, statuses: map[ipam.Resource]status{}, hints: map[ipam.Resource]status{}, details: map[ipam.Resource]string{}, strings: interner{}, json: newFastJSON()}
}

// tally counts what was seen of a resource.
type tally struct {
	// v1 and v3 tell in which of Calico's API groups; core kinds count as v1.
	v1, v3          bool
	items, rejected int
}

// status is an outcome that was told, not counted.
type status struct {
	status ipam.ReadStatus
	detail string
}

// bucket holds the objects of one kind until Finish knows which of them count:
// a saved directory may hold an object twice, or in both API groups.
type bucket[T any] struct {
	values  []T
	origins []origin
}

type origin struct {
	namespace, name string
	version         uint64
	v3              bool
}

// newer reports whether o is a better copy of an object than the one that was
// read before it: the one with the higher resourceVersion.
func (o origin) newer(than origin) bool { return o.version > than.version }

// merge appends other, with room for more of its kind, and empties it.
func (k *bucket[T]) merge(from anyBucket, more int) {
	other, ok := from.(*bucket[T])
	if !ok || len(other.values) == 0 {
		return
	}
	if len(k.values) == 0 && more == 0 {
		// What is whole is taken over as it is.
		*k, *other = *other, *k
		return
	}
	n := len(other.values)
	k.values = append(roomFor(k.values, n, more), other.values...)
	k.origins = append(roomFor(k.origins, n, more), other.origins...)
	other.empty()
}

// empty keeps the room for the next values.
func (k *bucket[T]) empty() {
	clear(k.values)
	clear(k.origins)
	k.values, k.origins = k.values[:0], k.origins[:0]
}

// anyBucket is a bucket of some kind.
type anyBucket interface {
	merge(other anyBucket, more int)
	empty()
}

func (b *Builder) buckets() []anyBucket {
	return []anyBucket{
		&b.blocks, &b.affinities, &b.handles, &b.pools, &b.reservations, &b.configs, &b.infos, &b.bgpConfigs, &b.peers, &b.filters,
		&b.felixConfigs, &b.kubeCtrls, &b.calicoNodes, &b.nodes, &b.pods, &b.namespaces, &b.services, &b.events, &b.workloads, &b.cniConfigs,
	}
}

// empty forgets everything that was added, for the next part of the same list.
func (b *Builder) empty() {
	for _, k := range b.buckets() {
		k.empty()
	}
	clear(b.tallies)
	b.rejected, b.ignored, b.newest = nil, 0, time.Time{}
}

// roomFor makes room at once for n values and, where that is known, for those
// that will follow: growing in small steps would leave more garbage behind than
// the list is long.
func roomFor[T any](list []T, n, more int) []T {
	if len(list)+n <= cap(list) {
		return list
	}
	if more == 0 {
		more = len(list) / 2
	}
	// A guess that fell a little short must not begin the small steps.
	return slices.Grow(list, n+more+more/64)
}

// resolve returns one value per object: of an object that was read twice the
// newer one, and nothing of projectcalico.org/v3 where crd.projectcalico.org/v1
// was read too, since that is where Calico's data is then.
func (k *bucket[T]) resolve(v1 bool) []T {
	if k.once(v1) {
		k.origins = nil
		return k.values
	}
	type key struct{ namespace, name string }
	chosen := make(map[key]int, len(k.values))
	out := k.values[:0]
	kept := k.origins[:0]
	for i, o := range k.origins {
		if o.v3 && v1 {
			continue
		}
		id := key{o.namespace, o.name}
		if j, ok := chosen[id]; ok {
			if o.newer(kept[j]) {
				out[j], kept[j] = k.values[i], o
			}
			continue
		}
		chosen[id] = len(out)
		out, kept = append(out, k.values[i]), append(kept, o)
	}
	return out
}

// once reports whether the list is one that an API server sends: in order,
// every object a single time.
func (k *bucket[T]) once(v1 bool) bool {
	for i := range k.origins {
		o := &k.origins[i]
		if o.v3 && v1 {
			return false
		}
		if i > 0 && ipam.CompareKeys(k.origins[i-1].namespace, k.origins[i-1].name, o.namespace, o.name) >= 0 {
			return false
		}
	}
	return true
}

// Add decodes one object. Objects of unknown kinds are counted as ignored; an
// object that cannot be used is reported and counted as rejected.
func (b *Builder) Add(o Object) {
	r, ok := resourceOf(o.APIVersion, o.Kind)
	if !ok {
		b.mu.Lock()
		b.ignored++
		b.mu.Unlock()
		return
	}
	if !knownVersion(o.APIVersion) {
		b.reject(r, &o, &fieldError{"apiVersion", fmt.Sprintf("%q is a version that this ipamaudit does not know", o.APIVersion)})
		return
	}
	var err error
	switch r {
	case ipam.ResBlocks:
		err = b.block(&o)
	case ipam.ResAffinities:
		err = b.affinity(&o)
	case ipam.ResHandles:
		err = b.handle(&o)
	case ipam.ResPools:
		err = b.pool(&o)
	case ipam.ResReservations:
		err = b.reservation(&o)
	case ipam.ResIPAMConfig:
		err = b.ipamConfig(&o)
	case ipam.ResClusterInfo:
		err = b.clusterInfo(&o)
	case ipam.ResBGPConfig:
		err = b.bgpConfig(&o)
	case ipam.ResBGPPeers:
		err = b.bgpPeer(&o)
	case ipam.ResBGPFilters:
		err = b.bgpFilter(&o)
	case ipam.ResFelixConfig:
		err = b.felixConfig(&o)
	case ipam.ResKubeCtrl:
		err = b.kubeControllers(&o)
	case ipam.ResCalicoNodes:
		err = b.calicoNode(&o)
	case ipam.ResNodes:
		err = b.node(&o)
	case ipam.ResPods:
		err = b.pod(&o)
	case ipam.ResNamespaces:
		err = b.namespace(&o)
	case ipam.ResServices:
		err = b.service(&o)
	case ipam.ResEvents:
		err = b.event(&o)
	case ipam.ResDeployments, ipam.ResDaemonSets:
		err = b.workload(&o, r, o.Kind)
	case ipam.ResConfigMaps:
		err = b.configMap(&o)
	}
	if err != nil {
		b.reject(r, &o, err)
	}
}

// rejection is a decoder's error with as much of the object as was read.
type rejection struct {
	name string
	err  error
}

func (e *rejection) Error() string { return e.err.Error() }
func (e *rejection) Unwrap() error { return e.err }

// decode fills w from o and checks that the object has a name.
func (b *Builder) decode(o *Object, w object) error {
	var err error
	if o.proto != nil || !b.json.decode(o.JSON, w) {
		err = o.decode(w)
	}
	*w.typ() = typeMeta{o.APIVersion, o.Kind}
	m := w.meta()
	if err != nil {
		return &rejection{nameOf(m), err}
	}
	if m.Name == "" {
		return &fieldError{"metadata.name", "is missing"}
	}
	return nil
}

func nameOf(m *metadata) string {
	if m.Namespace != "" {
		return m.Namespace + "/" + m.Name
	}
	return m.Name
}

// add stores a decoded object.
func add[T any](b *Builder, r ipam.Resource, k *bucket[T], o *Object, w object, value T) {
	m := w.meta()
	version, _ := strconv.ParseUint(m.ResourceVersion, 10, 64)
	from := origin{
		namespace: b.intern(m.Namespace), name: m.Name, version: version,
		v3: groupOf(o.APIVersion) == groupV3 && r != ipam.ResCalicoNodes,
	}
	if r == ipam.ResDeployments || r == ipam.ResDaemonSets {
		// They share a bucket.
		from.name = string(r) + "/" + from.name
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	k.values = append(k.values, value)
	k.origins = append(k.origins, from)
	b.count(r, from.v3, true, w)
}

// skip counts an object that says by itself that it does not count.
func (b *Builder) skip(r ipam.Resource, w object) { b.counted(r, w, true) }

// ignore counts an object of a known kind that tells nothing.
func (b *Builder) ignore(r ipam.Resource, w object) { b.counted(r, w, false) }

func (b *Builder) counted(r ipam.Resource, w object, keep bool) {
	v3 := groupOf(w.typ().APIVersion) == groupV3 && r != ipam.ResCalicoNodes
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(r, v3, keep, w)
}

func (b *Builder) count(r ipam.Resource, v3, keep bool, w object) {
	t := b.tally(r)
	t.items++
	t.v1, t.v3 = t.v1 || !v3, t.v3 || v3
	b.newest = later(b.newest, w.meta().CreationTimestamp.Time)
	if keep && b.tee != nil {
		b.tee(r, w)
	}
}

func (b *Builder) tally(r ipam.Resource) *tally {
	t := b.tallies[r]
	if t == nil {
		t = &tally{}
		b.tallies[r] = t
	}
	return t
}

// note remembers a time for the snapshot's default "now".
func (b *Builder) note(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.newest = later(b.newest, t)
}

// complain reports a part of an object that could not be used; the rest counts.
func (b *Builder) complain(_ ipam.Resource, o *Object, w object, err *fieldError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rejected = append(b.rejected, ipam.ObjectError{
		Where: o.Place.String(), Kind: o.Kind, Name: nameOf(w.meta()), Field: err.field, Message: err.message,
	})
}

// reject reports an object of resource r that could not be used.
func (b *Builder) reject(r ipam.Resource, o *Object, err error) {
	e := ipam.ObjectError{Where: o.Place.String(), Kind: o.Kind}
	var field *fieldError
	if errors.As(err, &field) {
		e.Field, e.Message = field.field, field.message
	} else {
		e.Field, e.Message = explain(err)
	}
	var rej *rejection
	if errors.As(err, &rej) {
		e.Name = rej.name
	}
	if e.Name == "" {
		// The decoder's checks come after the name was read.
		w := new(headerObject)
		if o.decode(w) == nil {
			e.Name = nameOf(w.meta())
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rejected = append(b.rejected, e)
	if r != "" {
		t := b.tally(r)
		t.items++
		t.rejected++
		v3 := groupOf(o.APIVersion) == groupV3 && r != ipam.ResCalicoNodes
		t.v1, t.v3 = t.v1 || !v3, t.v3 || v3
	}
}

// Rejected reports what was not usable and belongs to no counted object: a
// file, a fragment.
func (b *Builder) Rejected(e ipam.ObjectError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rejected = append(b.rejected, e)
}

// Ignored counts a file that is none of ours.
func (b *Builder) Ignored() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ignored++
}

// Listed records that a resource was read, even if nothing was in it. group is
// Calico's API group, or empty where it is not known or not Calico's.
func (b *Builder) Listed(r ipam.Resource, group string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tally(r)
	if !isCalico(r) || r == ipam.ResCalicoNodes {
		t.v1 = true
		return
	}
	t.v1, t.v3 = t.v1 || group == groupV1, t.v3 || group == groupV3
}

// SetStatus records an outcome that overrules what was counted: forbidden,
// absent, failed or missing, and why. Failed is not overruled by a later one.
func (b *Builder) SetStatus(r ipam.Resource, s ipam.ReadStatus, detail string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.statuses[r].status != ipam.Failed {
		b.statuses[r] = status{s, detail}
	}
}

// hint records an outcome that counts only where nothing else was seen of r.
func (b *Builder) hint(r ipam.Resource, s ipam.ReadStatus, detail string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hints[r] = status{s, detail}
}

// usable reports whether anything at all was read.
func (b *Builder) usable() bool {
	for r, t := range b.tallies {
		_, overruled := b.statuses[r]
		if !overruled && (t.items == 0 || t.rejected < t.items) {
			return true
		}
	}
	return len(b.tables) > 0
}

// AddTables adds route tables; source names where they come from ("files").
func (b *Builder) AddTables(source string, tables ...ipam.RouteTable) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.source = source
	b.tables = append(b.tables, tables...)
}

// merge moves everything of other into b, behind what is there, and makes room
// for so many more objects of the kinds in it. other is empty then.
func (b *Builder) merge(other *Builder, more int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	theirs := other.buckets()
	for i, mine := range b.buckets() {
		mine.merge(theirs[i], more)
	}
	for r, o := range other.tallies {
		t := b.tally(r)
		t.v1, t.v3 = t.v1 || o.v1, t.v3 || o.v3
		t.items += o.items
		t.rejected += o.rejected
	}
	b.rejected = append(b.rejected, other.rejected...)
	b.ignored += other.ignored
	b.newest = later(b.newest, other.newest)
	other.empty()
}

// FinishOptions say what the objects do not.
type FinishOptions struct {
	// Name and ID of the cluster where they are known from elsewhere. An ID is
	// only used where the cluster's own (UID of kube-system) was not read.
	Name, ID string
	// AsOf is the "now"; when zero, the newest time in the objects.
	AsOf time.Time
	// AsOfInferred says that AsOf was itself only the newest time in objects.
	AsOfInferred bool
	// API is the group that discovery found; when empty, the objects' own.
	API string
}

// Finish returns the sealed snapshot. The Builder must not be used any more.
func (b *Builder) Finish(opts FinishOptions) (*ipam.Snapshot, error) {
	s := ipam.NewSnapshot()
	v1 := func(r ipam.Resource) bool { t := b.tallies[r]; return t != nil && t.v1 }

	s.Blocks = b.blocks.resolve(v1(ipam.ResBlocks))
	s.Affinities = b.affinities.resolve(v1(ipam.ResAffinities))
	s.Handles = b.handles.resolve(v1(ipam.ResHandles))
	s.Pools = b.pools.resolve(v1(ipam.ResPools))
	s.Reservations = b.reservations.resolve(v1(ipam.ResReservations))
	s.Peers = b.peers.resolve(v1(ipam.ResBGPPeers))
	s.Filters = b.filters.resolve(v1(ipam.ResBGPFilters))
	s.CalicoNodes = b.calicoNodes.resolve(true)
	s.Nodes = b.nodes.resolve(true)
	s.Pods = b.pods.resolve(true)
	s.Services = b.services.resolve(true)
	s.Events = b.events.resolve(true)
	s.Workloads = b.workloads.resolve(true)
	singleton(&b.configs, v1(ipam.ResIPAMConfig), &s.Config)
	singleton(&b.infos, v1(ipam.ResClusterInfo), &s.Info)
	singleton(&b.bgpConfigs, v1(ipam.ResBGPConfig), &s.BGP)
	s.BGP.NodeASNumbers = nodeASNumbers(&b.bgpConfigs, v1(ipam.ResBGPConfig))
	singleton(&b.felixConfigs, v1(ipam.ResFelixConfig), &s.Felix)
	singleton(&b.kubeCtrls, v1(ipam.ResKubeCtrl), &s.KubeCtrl)

	kubeSystem, err := b.kubeSystem()
	if err != nil {
		return nil, err
	}
	s.Namespaces = b.namespaces.resolve(true)
	for _, texts := range b.cniConfigs.resolve(true) {
		s.CNIConfigs = append(s.CNIConfigs, texts...)
	}
	slices.Sort(s.CNIConfigs)

	b.cover(s.Coverage)
	dropUnread(s)
	s.API = cmp.Or(opts.API, b.api())
	s.Cluster = ipam.ClusterRef{Name: opts.Name, ID: cmp.Or(kubeSystem, opts.ID, s.Info.GUID, opts.Name)}
	s.AsOf, s.AsOfInferred = opts.AsOf, opts.AsOfInferred
	if s.AsOf.IsZero() {
		s.AsOf, s.AsOfInferred = b.newest, true
	}
	s.AsOf = s.AsOf.UTC()
	s.Tables = b.mergedTables()
	s.RouteSource = b.source
	s.Rejected, s.Ignored = b.rejected, b.ignored
	return s.Seal(), nil
}

// singleton sets out to the object named "default", if it was read; those of
// single nodes ("node.worker1") are none of its business.
func singleton[T any](k *bucket[T], v1 bool, out *T) {
	best := -1
	for i, o := range k.origins {
		if o.name != "default" || o.v3 && v1 {
			continue
		}
		if best < 0 || o.newer(k.origins[best]) {
			best = i
		}
	}
	if best >= 0 {
		*out = k.values[best]
	}
}

// nodeASNumbers are those of the BGPConfigurations named "node.NAME".
func nodeASNumbers(k *bucket[ipam.BGPConfig], v1 bool) map[string]uint32 {
	var out map[string]uint32
	for i, o := range k.origins {
		node, ok := strings.CutPrefix(o.name, "node.")
		if !ok || o.v3 && v1 || k.values[i].ASNumber == 0 {
			continue
		}
		if out == nil {
			out = map[string]uint32{}
		}
		out[node] = k.values[i].ASNumber
	}
	return out
}

// kubeSystem returns the UID of namespace kube-system. Two of them mean that
// two clusters were mixed: every finding would be nonsense.
func (b *Builder) kubeSystem() (string, error) {
	uid := ""
	for i, o := range b.namespaces.origins {
		if o.name != "kube-system" || b.namespaces.values[i].UID == "" {
			continue
		}
		got := b.namespaces.values[i].UID
		if uid != "" && uid != got {
			return "", fmt.Errorf("%w: it holds two clusters (namespace kube-system has UIDs %s and %s); pass each by itself", ErrBadInput, uid, got)
		}
		uid = got
	}
	return uid, nil
}

// api chooses the group as Calico does: v1 where both are present.
func (b *Builder) api() string {
	v3 := false
	for r, t := range b.tallies {
		if !isCalico(r) || r == ipam.ResCalicoNodes {
			continue
		}
		if t.v1 {
			return ipam.APIv1
		}
		v3 = v3 || t.v3
	}
	if v3 {
		return ipam.APIv3
	}
	return ""
}

// cover writes down how the reading of each resource went.
func (b *Builder) cover(c ipam.Coverage) {
	for r, t := range b.tallies {
		detail := b.details[r]
		if t.rejected > 0 {
			detail = fmt.Sprintf("%d of %d objects could not be used", t.rejected, t.items)
		}
		st := ipam.Read
		if t.items > 0 && t.rejected == t.items {
			st = ipam.Failed
		}
		c.Set(r, st, t.items, detail)
	}
	for r, s := range b.hints {
		if b.tallies[r] == nil {
			c.Set(r, s.status, 0, s.detail)
		}
	}
	for r, s := range b.statuses {
		items := 0
		if t := b.tallies[r]; t != nil {
			items = t.items
		}
		c.Set(r, s.status, items, s.detail)
	}
}

// dropUnread forgets what is known of resources that were not read, or not
// whole: half a list of pods would make the other half look leaked.
func dropUnread(s *ipam.Snapshot) {
	for r := range s.Coverage {
		if !s.Coverage.Read(r) {
			s.Forget(r)
		}
	}
}

// mergedTables joins the tables of one node (routes/n.txt and routes/n.json).
func (b *Builder) mergedTables() []ipam.RouteTable {
	byNode := map[string]*ipam.RouteTable{}
	for _, t := range b.tables {
		have := byNode[t.Node]
		switch {
		case have == nil || have.Kind != t.Kind && better(&t, have):
			byNode[t.Node] = &t
		case have.Kind == t.Kind:
			joinTables(have, &t)
		}
	}
	var out []ipam.RouteTable
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		out = append(out, *byNode[node])
	}
	return out
}
