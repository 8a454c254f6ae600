package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"ipamaudit/test/bed"
)

// Settings are how pages are fetched.
type Settings struct {
	Page int
	// Pretty asks for JSON with line breaks, as people save it.
	Pretty bool
}

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
					n, next, err = fetchPage(ctx, client, config.Host+path, s, cont, io.Discard)
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

// Save writes every list that an audit reads as whole, indented JSON into dir,
// like somebody who saves them with kubectl get -o json. It returns how many
// bytes that are.
func Save(ctx context.Context, config *rest.Config, dir string) (int64, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, err
	}
	const calico = "/apis/" + string(bed.CalicoV1)
	total := int64(0)
	for _, path := range append(lists(), calico+"/ippools", calico+"/ipamconfigs", calico+"/clusterinformations", "/api/v1/namespaces", "/apis/apps/v1/deployments") {
		cont := ""
		for number := 1; number == 1 || cont != ""; number++ {
			f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%02d.json", filepath.Base(path), number)))
			if err != nil {
				return 0, err
			}
			n, next, err := fetchPage(ctx, client, config.Host+path, Settings{Page: 5000, Pretty: true}, cont, f)
			if err = errors.Join(err, f.Close()); err != nil {
				return 0, fmt.Errorf("%s: %w", path, err)
			}
			total += n
			cont = next
		}
	}
	return total, nil
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
			_, _, err := fetchPage(ctx, client, config.Host+path, Settings{Page: 1}, "", io.Discard)
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

func fetchPage(ctx context.Context, client *http.Client, address string, s Settings, cont string, to io.Writer) (int64, string, error) {
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
	if s.Pretty {
		req.Header.Set("Accept", "application/json")
		req.URL.RawQuery += "&pretty=true"
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, "", fmt.Errorf("%w: %s", errBusy, resp.Status)
	}
	return discard(io.TeeReader(resp.Body, to))
}

// discard reads a body and finds the continue token in its first or last bytes.
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
	// Custom resources have it at the end, built-in kinds in front. A token is
	// base64 of JSON: {"v":"meta.k8s.io/v1","rv":…
	return n, string(regexp.MustCompile(`eyJ2Ijoi[A-Za-z0-9_=-]+`).Find(append(first, last...))), nil
}
