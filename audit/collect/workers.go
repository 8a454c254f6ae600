package collect

import (
	"bytes"
	"runtime"
	"sync"
)

// job is one object on its way to a worker; from and to are its bytes in the batch.
type job struct {
	apiVersion, kind string
	place            Place
	yaml             bool
	from, to         int
}

// batch is some objects of one stream and what becomes of them.
type batch struct {
	text []byte
	jobs []job
	// part holds the decoded objects once decoded has been signalled.
	part    *Builder
	decoded chan struct{}
	// more is about how many objects follow in the same stream.
	more int
}

// batchSize is how much a worker takes at a time: enough to make the hand-over cheap.
const batchSize = 256 << 10

// workers decode objects while the next ones are read. What they decode reaches
// the Builder in the order in which it was read.
type workers struct {
	b *Builder
	// in leads to the workers, order to the goroutine that merges.
	in, order chan *batch
	// free are batches to fill again.
	free chan *batch
	wg   sync.WaitGroup
	next *batch
	once sync.Once
	// left is how much of the stream is still to come, as far as is known.
	left int64
}

func startWorkers(b *Builder) *workers {
	n := min(runtime.GOMAXPROCS(0), 4)
	w := &workers{b: b, in: make(chan *batch, n), order: make(chan *batch, 2*n), free: make(chan *batch, 2*n+2)}
	w.next = w.fresh()
	for range n {
		w.wg.Go(func() {
			names := interner{}
			for batch := range w.in {
				batch.part.strings = names
				for _, j := range batch.jobs {
					do(batch.part, j, batch.text[j.from:j.to])
				}
				batch.decoded <- struct{}{}
			}
		})
	}
	w.wg.Go(func() {
		for batch := range w.order {
			<-batch.decoded
			w.b.merge(batch.part, batch.more)
			batch.text, batch.jobs, batch.more = batch.text[:0], batch.jobs[:0], 0
			select {
			case w.free <- batch:
			default:
			}
		}
	})
	return w
}

func (w *workers) fresh() *batch {
	part := NewBuilder()
	part.tee = w.b.tee
	return &batch{part: part, decoded: make(chan struct{}, 1)}
}

// expect tells how long the next stream is; 0 where nobody knows.
func (w *workers) expect(size int64) { w.left = size }

// add copies text, which the caller may then overwrite.
func (w *workers) add(j job, text []byte) {
	j.from = len(w.next.text)
	w.next.text = append(w.next.text, text...)
	j.to = len(w.next.text)
	w.next.jobs = append(w.next.jobs, j)
	if len(w.next.text) >= batchSize {
		w.flush()
	}
}

func (w *workers) flush() {
	if len(w.next.jobs) == 0 {
		return
	}
	if w.left -= int64(len(w.next.text)); w.left > 0 {
		w.next.more = believable(int(w.left / (int64(len(w.next.text)/len(w.next.jobs)) + 1)))
	}
	w.order <- w.next
	w.in <- w.next
	select {
	case w.next = <-w.free:
	default:
		w.next = w.fresh()
	}
}

// wait hands over what is left and returns when everything is decoded and merged.
func (w *workers) wait() {
	w.once.Do(func() {
		w.flush()
		close(w.in)
		close(w.order)
	})
	w.wg.Wait()
}

func do(b *Builder, j job, text []byte) {
	if !j.yaml {
		b.Add(Object{APIVersion: j.apiVersion, Kind: j.kind, JSON: text, Place: j.place})
		return
	}
	raw, err := yamlToJSON(text)
	if err != nil {
		brokenFragment(b, j.place, j.apiVersion, j.kind, err)
		return
	}
	if string(raw) == "null" || len(raw) == 0 || raw[0] != '{' && raw[0] != '[' {
		b.Ignored()
		return
	}
	if err := newJSONStream(bytes.NewReader(raw), j.place, &yamlItems{b, j}).run(); err != nil {
		brokenFragment(b, j.place, j.apiVersion, j.kind, err)
	}
}

// yamlItems takes the objects of one YAML fragment: one, or a list's.
type yamlItems struct {
	b *Builder
	j job
}

func (y *yamlItems) wants(apiVersion, kind string) bool {
	_, ok := resourceOf(apiVersion, kind)
	return ok
}

func (y *yamlItems) object(o Object) {
	if o.JSON == nil {
		y.b.Ignored()
		return
	}
	item := o.Place.Item
	o.Place = y.j.place
	if item != y.j.place.Item {
		o.Place.Item = item
	}
	y.b.Add(o)
}

func (y *yamlItems) listed(e listEnd) { listed(y.b, y.j.place.File, e) }

func (y *yamlItems) broken(_ Place, apiVersion, kind string, err error) {
	brokenFragment(y.b, y.j.place, apiVersion, kind, err)
}
