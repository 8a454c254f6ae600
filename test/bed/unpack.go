package bed

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// unpackPrograms decompresses kube-apiserver.zst and etcd.zst, see unpackProgram.
func unpackPrograms(dir, cache string) (p Programs, err error) {
	if p.APIServer, err = unpackProgram(dir, cache, "kube-apiserver"); err != nil {
		return Programs{}, err
	}
	if p.Etcd, err = unpackProgram(dir, cache, "etcd"); err != nil {
		return Programs{}, err
	}
	return p, nil
}

// unpackProgram decompresses name.zst from dir into the cache, where its
// checksum names it, and verifies it against dir's SHA256SUMS (of the
// decompressed files).
func unpackProgram(dir, cache, name string) (string, error) {
	sums, err := readSums(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		return "", err
	}
	want, ok := sums[name]
	if !ok {
		return "", fmt.Errorf("%s/SHA256SUMS does not list %s", dir, name)
	}
	to := filepath.Join(cache, want[:16], name)
	if _, err := os.Stat(to); err == nil {
		return to, nil // installFile let it appear only after verification
	}
	from := filepath.Join(dir, name+".zst")
	if err := installFile(to, func(w *os.File) error { return decompress(from, w, want) }); err != nil {
		return "", fmt.Errorf("decompress %s: %w", from, err)
	}
	return to, nil
}

func decompress(from string, to io.Writer, wantSum string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := zstd.NewReader(f)
	if err != nil {
		return err
	}
	defer r.Close()
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(to, hash), r); err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != wantSum {
		return fmt.Errorf("SHA-256 is %s, SHA256SUMS says %s", got, wantSum)
	}
	return nil
}

// readSums parses sha256sum's output: file name to hex digest.
func readSums(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || len(fields[0]) != hex.EncodedLen(sha256.Size) {
			return nil, fmt.Errorf("%s: not a line of sha256sum: %q", path, strings.TrimSpace(line))
		}
		sums[strings.TrimPrefix(fields[1], "*")] = fields[0]
	}
	return sums, nil
}
