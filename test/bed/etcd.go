package bed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Pair is a key and a value of etcd.
type Pair struct {
	Key   string
	Value []byte
}

// etcdBatch is how many puts one transaction may have (etcd's --max-txn-ops is 128).
const etcdBatch = 100

// Put writes straight into etcd, past the API server, which sees it through
// its watches: ten times as fast, and nothing is validated or defaulted. Keys
// are the API server's: /registry/pods/NAMESPACE/NAME, and so on.
func (c *Cluster) Put(ctx context.Context, pairs []Pair) error {
	for len(pairs) > 0 {
		n := min(len(pairs), etcdBatch)
		if err := c.put(ctx, pairs[:n]); err != nil {
			return fmt.Errorf("put %s and others into the etcd of %s: %w", pairs[0].Key, c.Name, err)
		}
		pairs = pairs[n:]
	}
	return nil
}

func (c *Cluster) put(ctx context.Context, pairs []Pair) error {
	type put struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	type op struct {
		Put put `json:"request_put"`
	}
	var txn struct {
		Success []op `json:"success"`
	}
	for _, p := range pairs {
		txn.Success = append(txn.Success, op{put{[]byte(p.Key), p.Value}})
	}
	return c.etcdCall(ctx, "kv/txn", txn, nil)
}

// wipe deletes every key that begins with the prefix.
func (c *Cluster) wipe(ctx context.Context, prefix string) error {
	end := []byte(prefix)
	end[len(end)-1]++
	if err := c.etcdCall(ctx, "kv/deleterange", map[string][]byte{"key": []byte(prefix), "range_end": end}, nil); err != nil {
		return fmt.Errorf("delete %s from the etcd of %s: %w", prefix, c.Name, err)
	}
	return nil
}

// Compact makes etcd forget all but the newest version of each object: continue
// tokens that were handed out before expire.
func (c *Cluster) Compact(ctx context.Context) error {
	// A token of the newest version would still be good: make a newer one.
	if err := c.Put(ctx, []Pair{{Key: "/bed/compacted", Value: []byte("x")}}); err != nil {
		return err
	}
	var at struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := c.etcdCall(ctx, "kv/range", map[string][]byte{"key": []byte("/bed/compacted")}, &at); err != nil {
		return err
	}
	if err := c.etcdCall(ctx, "kv/compaction", map[string]any{"revision": at.Header.Revision, "physical": true}, nil); err != nil {
		return fmt.Errorf("compact the etcd of %s: %w", c.Name, err)
	}
	return nil
}

// etcdCall calls etcd's JSON gateway; out is for the answer, or nil.
func (c *Cluster) etcdCall(ctx context.Context, method string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Etcd+"/v3/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, answer)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}
