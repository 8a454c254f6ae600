package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const (
	// user is numeric because the kubelet cannot verify runAsNonRoot against a name; 65532 is "nonroot" by distroless' custom.
	user       = "65532:65532"
	entrypoint = "/ipamaudit"
	// caPath is the first of the places where Go's crypto/x509 looks (root_linux.go).
	caPath = "/etc/ssl/certs/ca-certificates.crt"
)

// options say what to pack and how to label it.
type options struct {
	Binary, Arch, CABundle, Image, Version, Revision, Out string
	Created                                               time.Time
}

// write builds the image and writes it to o.Out; a failure leaves no half-written tar behind.
func write(o options) error {
	tag, err := name.NewTag(o.Image, name.WithDefaultRegistry(""))
	if err != nil {
		return fmt.Errorf("image name: %w", err)
	}
	img, err := build(o)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.Out), 0o755); err != nil {
		return fmt.Errorf("create the folder of the tar: %w", err)
	}
	partial := o.Out + ".partial"
	if err := tarball.WriteToFile(partial, tag, img); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", partial, err), os.Remove(partial))
	}
	if err := os.Rename(partial, o.Out); err != nil {
		return fmt.Errorf("put the tar in place: %w", err)
	}
	return nil
}

func build(o options) (v1.Image, error) {
	binary, err := readBinary(o.Binary, o.Arch)
	if err != nil {
		return nil, err
	}
	authorities, err := readCABundle(o.CABundle)
	if err != nil {
		return nil, err
	}
	// The bundle changes less often than the binary: its own layer below keeps nightly pulls small.
	caLayer, err := layer(caPath, authorities, 0o644, o.Created)
	if err != nil {
		return nil, err
	}
	binaryLayer, err := layer(entrypoint, binary, 0o755, o.Created)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: o.Created}
	img, err := mutate.Append(empty.Image,
		mutate.Addendum{Layer: caLayer, History: v1.History{Created: created, CreatedBy: "COPY ca-certificates.crt " + caPath}},
		mutate.Addendum{Layer: binaryLayer, History: v1.History{Created: created, CreatedBy: "COPY ipamaudit " + entrypoint}},
	)
	if err != nil {
		return nil, fmt.Errorf("append the layers: %w", err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the image's configuration: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", o.Arch, created
	file.Config = v1.Config{
		Entrypoint: []string{entrypoint},
		User:       user,
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":       "ipamaudit",
			"org.opencontainers.image.description": "Nightly auditor of Calico IPAM for fleets of Kubernetes clusters",
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.version":     o.Version,
			"org.opencontainers.image.revision":    o.Revision,
			"org.opencontainers.image.created":     o.Created.Format(time.RFC3339),
		},
	}
	img, err = mutate.ConfigFile(img, file)
	if err != nil {
		return nil, fmt.Errorf("set the image's configuration: %w", err)
	}
	return img, nil
}

// readBinary refuses what could not start in an empty image: another operating system or architecture,
// or a binary that asks for a dynamic loader. Seen at build time it is a line of text, at night it is "exec format error".
func readBinary(path, arch string) ([]byte, error) {
	machine, known := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	if !known {
		return nil, fmt.Errorf("architecture %q: want amd64 or arm64", arch)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the binary: %w", err)
	}
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("%s is no Linux binary (build it with GOOS=linux): %w", path, err)
	}
	if file.Machine != machine {
		return nil, fmt.Errorf("%s is built for %s, the image for %s: build it with GOARCH=%s", path, file.Machine, arch, arch)
	}
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("%s is dynamically linked, the image has no loader: build it with CGO_ENABLED=0", path)
		}
	}
	return content, nil
}

// readCABundle refuses a bundle without a certificate: the image would trust nobody, and every API call would fail.
func readCABundle(path string) ([]byte, error) {
	bundle, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no CA bundle at %s: install the package ca-certificates, or name a PEM file with -ca-bundle (make image CA_BUNDLE=…): %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the CA bundle: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("CA bundle %s holds no PEM certificate", path)
	}
	return bundle, nil
}

// layer is one file, owned by root, in a layer that depends on nothing but its arguments.
func layer(path string, content []byte, mode int64, modified time.Time) (v1.Layer, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	header := &tar.Header{Typeflag: tar.TypeReg, Name: path[1:], Size: int64(len(content)), Mode: mode, ModTime: modified}
	if err := w.WriteHeader(header); err != nil {
		return nil, fmt.Errorf("layer of %s: %w", path, err)
	}
	if _, err := w.Write(content); err != nil {
		return nil, fmt.Errorf("layer of %s: %w", path, err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("layer of %s: %w", path, err)
	}
	made, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil
	})
	if err != nil {
		return nil, fmt.Errorf("layer of %s: %w", path, err)
	}
	return made, nil
}
