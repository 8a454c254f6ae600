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
	seq              int64
	from, to         int
}

type batch struct {
	text []byte
	jobs []job
}

// batchSize is how much a worker takes at a time: enough to make the hand-over cheap.
const batchSize = 256 << 10

// workers decode objects while the next ones are read.
type workers struct {
	b  *Builder
	in chan *batch
	// free are batches to fill again.
	free chan *batch
	wg   sync.WaitGroup
	next *batch
	seq  int64
	once sync.Once
}

func startWorkers(b *Builder) *workers {
	n := min(runtime.GOMAXPROCS(0), 4)
	w := &workers{b: b, in: make(chan *batch, n), free: make(chan *batch, 2*n+1), next: new(batch)}
	for range n {
		w.wg.Go(func() {
			for batch := range w.in {
				for _, j := range batch.jobs {
					w.do(j, batch.text[j.from:j.to])
				}
				batch.text, batch.jobs = batch.text[:0], batch.jobs[:0]
				w.free <- batch
			}
		})
	}
	return w
}

// add copies text, which the caller may then overwrite.
func (w *workers) add(j job, text []byte) {
	w.seq++
	j.seq = w.seq
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
	w.in <- w.next
	select {
	case w.next = <-w.free:
	default:
		w.next = new(batch)
	}
}

// wait hands over what is left and returns when everything is decoded.
func (w *workers) wait() {
	w.once.Do(func() {
		w.flush()
		close(w.in)
	})
	w.wg.Wait()
}

func (w *workers) do(j job, text []byte) {
	if !j.yaml {
		w.b.Add(Object{APIVersion: j.apiVersion, Kind: j.kind, JSON: text, Place: j.place, seq: j.seq})
		return
	}
	raw, err := yamlToJSON(text)
	if err != nil {
		brokenFragment(w.b, j.place, j.apiVersion, j.kind, err)
		return
	}
	if string(raw) == "null" || len(raw) == 0 || raw[0] != '{' && raw[0] != '[' {
		w.b.Ignored()
		return
	}
	if err := newJSONStream(bytes.NewReader(raw), j.place, &yamlItems{w.b, j}).run(); err != nil {
		brokenFragment(w.b, j.place, j.apiVersion, j.kind, err)
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
	o.Place, o.seq = y.j.place, y.j.seq
	if item != y.j.place.Item {
		o.Place.Item = item
	}
	y.b.Add(o)
}

func (y *yamlItems) listed(e listEnd) { listed(y.b, y.j.place.File, e) }

func (y *yamlItems) broken(_ Place, apiVersion, kind string, err error) {
	brokenFragment(y.b, y.j.place, apiVersion, kind, err)
}
