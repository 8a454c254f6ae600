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
	return c.askEtcd(ctx, "/v3/kv/txn", txn)
}

// wipe deletes every key that begins with the prefix.
func (c *Cluster) wipe(ctx context.Context, prefix string) error {
	var request struct {
		Key []byte `json:"key"`
		End []byte `json:"range_end"`
	}
	request.Key, request.End = []byte(prefix), []byte(prefix)
	request.End[len(prefix)-1]++
	if err := c.askEtcd(ctx, "/v3/kv/deleterange", request); err != nil {
		return fmt.Errorf("delete %s from the etcd of %s: %w", prefix, c.Name, err)
	}
	return nil
}

func (c *Cluster) askEtcd(ctx context.Context, path string, request any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Etcd+path, bytes.NewReader(body))
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
	return nil
}
