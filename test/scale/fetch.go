package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"ipamaudit/test/bed"
)

// Settings are how pages are fetched.
type Settings struct{ Page int }

// Fetched is what fetching and throwing away every page took.
type Fetched struct {
	Took     time.Duration
	Bytes    int64
	Requests int64
}

// lists are the large ones, as the audit reads them.
func lists() []string {
	const calico = "/apis/" + string(bed.CalicoV1)
	return []string{"/api/v1/pods", calico + "/ipamblocks", calico + "/ipamhandles", "/api/v1/nodes", calico + "/blockaffinities"}
}

// Fetch reads the lists four at a time, as the audit does, and throws them
// away: the least that anybody can spend on them. No byte is decoded but the
// continue token's.
func Fetch(ctx context.Context, config *rest.Config, s Settings) (Fetched, error) {
	config = rest.CopyConfig(config)
	config.DisableCompression = true // what is thrown away need not be unpacked, and packing costs the server more
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return Fetched{}, err
	}
	var total, requests atomic.Int64
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, path := range lists() {
		group.Go(func() error {
			cont := ""
			for {
				var n int64
				var next string
				err := errBusy
				// A server that is short of time answers 429 or 504: that is part of the price.
				for tries := 0; errors.Is(err, errBusy) && tries < 6; tries++ {
					n, next, err = fetchPage(ctx, client, config.Host+path, s, cont)
					total.Add(n)
					requests.Add(1)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				if cont = next; cont == "" {
					return nil
				}
			}
		})
	}
	err = group.Wait()
	return Fetched{time.Since(began), total.Load(), requests.Load()}, err
}

// Settle waits until the API server serves every list: it has to read what was
// put into etcd behind its back first, and answers 504 until then.
func Settle(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	for _, path := range lists() {
		for {
			_, _, err := fetchPage(ctx, client, config.Host+path, Settings{Page: 1}, "")
			if err == nil {
				break
			}
			if !errors.Is(err, errBusy) {
				return fmt.Errorf("%s: %w", path, err)
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s: %w: %w", path, err, ctx.Err())
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

var errBusy = errors.New("the API server refuses")

func fetchPage(ctx context.Context, client *http.Client, address string, s Settings, cont string) (int64, string, error) {
	query := url.Values{"limit": {strconv.Itoa(s.Page)}}
	if cont != "" {
		query.Set("continue", cont)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Accept", "application/vnd.kubernetes.protobuf,application/json")
	req.Header.Set("User-Agent", "ipamaudit-scale")
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, "", fmt.Errorf("%w: %s", errBusy, resp.Status)
	}
	return discard(resp.Body)
}

// discard reads a body and keeps its first and last bytes, between which the
// continue token stands: protobuf has the list's metadata in front, a custom
// resource's JSON at the end.
func discard(body io.Reader) (n int64, cont string, err error) {
	const keep = 4 << 10
	var first, last []byte
	buf := make([]byte, 64<<10)
	for {
		m, err := body.Read(buf)
		n += int64(m)
		if len(first) < keep {
			first = append(first, buf[:min(m, keep-len(first))]...)
		}
		last = append(last, buf[:m]...)
		last = last[max(0, len(last)-keep):]
		if err == io.EOF {
			break
		}
		if err != nil {
			return n, "", err
		}
	}
	if bytes.HasPrefix(first, []byte("k8s\x00")) {
		// A token is base64 of JSON: {"v":"meta.k8s.io/v1","rv":…
		return n, string(regexp.MustCompile(`eyJ2Ijoi[A-Za-z0-9_=-]+`).Find(first)), nil
	}
	i := bytes.LastIndex(last, []byte(`"metadata":{`))
	if i < 0 {
		return n, "", fmt.Errorf("no list metadata at the end of %d bytes", n)
	}
	var meta struct{ Continue string }
	if err := json.NewDecoder(bytes.NewReader(last[i+len(`"metadata":`):])).Decode(&meta); err != nil {
		return n, "", err
	}
	return n, meta.Continue, nil
}
