package main

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"debug/elf"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestImage(t *testing.T) {
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		t.Run(arch, func(t *testing.T) {
			o := testOptions(t, arch, elfBinary(t, machine, elf.PT_LOAD))
			if err := write(o); err != nil {
				t.Fatal(err)
			}
			tag, err := name.NewTag(o.Image)
			if err != nil {
				t.Fatal(err)
			}
			img, err := tarball.ImageFromPath(o.Out, &tag)
			if err != nil {
				t.Fatal(err)
			}
			file, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if file.OS != "linux" || file.Architecture != arch || !file.Created.Equal(o.Created) {
				t.Errorf("platform %s/%s, created %s", file.OS, file.Architecture, file.Created)
			}
			if diff := cmp.Diff([]string{"/ipamaudit"}, file.Config.Entrypoint); diff != "" {
				t.Errorf("entrypoint (-want +got):\n%s", diff)
			}
			if file.Config.User != "65532:65532" {
				t.Errorf("user %q, want a numeric one that is not root", file.Config.User)
			}
			want := map[string]string{
				"org.opencontainers.image.version":  "v1.2.3",
				"org.opencontainers.image.revision": "abc",
				"org.opencontainers.image.created":  "2026-11-30T00:00:00Z",
				"org.opencontainers.image.licenses": "Apache-2.0",
			}
			for label, value := range want {
				if got := file.Config.Labels[label]; got != value {
					t.Errorf("label %s = %q, want %q", label, got, value)
				}
			}
			layers, err := img.Layers()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range layers {
				content, err := l.Uncompressed()
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, describe(t, content)...)
			}
			bundle, err := os.ReadFile(o.CABundle)
			if err != nil {
				t.Fatal(err)
			}
			program, err := os.ReadFile(o.Binary)
			if err != nil {
				t.Fatal(err)
			}
			wantFiles := []string{
				"etc/ssl/certs/ca-certificates.crt -rw-r--r-- 0:0 2026-11-30 " + string(bundle),
				"ipamaudit -rwxr-xr-x 0:0 2026-11-30 " + string(program),
			}
			if diff := cmp.Diff(wantFiles, got); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func TestImageIsReproducible(t *testing.T) {
	o := testOptions(t, "amd64", elfBinary(t, elf.EM_X86_64, elf.PT_LOAD))
	var tars [2][]byte
	for i := range tars {
		if err := write(o); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(o.Out)
		if err != nil {
			t.Fatal(err)
		}
		tars[i] = content
	}
	if !bytes.Equal(tars[0], tars[1]) {
		t.Error("the same inputs gave two different images")
	}
}

func TestImageRefuses(t *testing.T) {
	good := elfBinary(t, elf.EM_X86_64, elf.PT_LOAD)
	tests := []struct {
		name   string
		binary []byte
		change func(*options)
		want   string
	}{
		{"a script", []byte("#!/bin/sh\n"), nil, "GOOS=linux"},
		{"another architecture", elfBinary(t, elf.EM_AARCH64, elf.PT_LOAD), nil, "GOARCH=amd64"},
		{"a dynamic binary", elfBinary(t, elf.EM_X86_64, elf.PT_INTERP), nil, "CGO_ENABLED=0"},
		{"an unknown architecture", good, func(o *options) { o.Arch = "riscv64" }, "amd64 or arm64"},
		{"no binary", good, func(o *options) { o.Binary += ".gone" }, "read the binary"},
		{"no CA bundle", good, func(o *options) { o.CABundle += ".gone" }, "ca-certificates"},
		{"an empty CA bundle", good, func(o *options) { o.CABundle = o.Binary }, "no PEM certificate"},
		{"a bad name", good, func(o *options) { o.Image = "Ipam Audit" }, "image name"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := testOptions(t, "amd64", test.binary)
			if test.change != nil {
				test.change(&o)
			}
			err := write(o)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one that says %q", err, test.want)
			}
			if left, _ := filepath.Glob(o.Out + "*"); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

func TestParse(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	got, err := parse([]string{"-binary", "b", "-arch", "arm64"})
	if err != nil {
		t.Fatal(err)
	}
	want := options{
		Binary: "b", Arch: "arm64", CABundle: "/etc/ssl/certs/ca-certificates.crt", Image: "ipamaudit:devel",
		Version: "devel", Revision: "unknown", Out: "ipamaudit.tar", Created: time.Unix(1700000000, 0).UTC(),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	for _, args := range [][]string{{}, {"-binary", "b", "extra"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("parse(%q) accepted", args)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, err := parse([]string{"-binary", "b"}); err == nil {
		t.Error("SOURCE_DATE_EPOCH=yesterday accepted")
	}
}

func testOptions(t *testing.T, arch string, program []byte) options {
	t.Helper()
	dir := t.TempDir()
	o := options{
		Binary: filepath.Join(dir, "program"), Arch: arch, CABundle: filepath.Join(dir, "ca.pem"),
		Image: "registry.example.com/sre/ipamaudit:v1.2.3", Version: "v1.2.3", Revision: "abc", Out: filepath.Join(dir, "out", "image.tar"),
		Created: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC),
	}
	for path, content := range map[string][]byte{o.Binary: program, o.CABundle: certificate(t)} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// elfBinary is the smallest file that debug/elf accepts: a header and one program segment.
func elfBinary(t *testing.T, machine elf.Machine, segment elf.ProgType) []byte {
	t.Helper()
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
	}
	var out bytes.Buffer
	for _, part := range []any{header, elf.Prog64{Type: uint32(segment)}} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func certificate(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// describe lists the files of a layer: name, mode, owner, day and content.
func describe(t *testing.T, content io.ReadCloser) []string {
	t.Helper()
	defer content.Close()
	var files []string
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		owner := fmt.Sprintf("%d:%d", header.Uid, header.Gid)
		files = append(files, strings.Join([]string{header.Name, header.FileInfo().Mode().String(), owner, header.ModTime.UTC().Format(time.DateOnly), string(body)}, " "))
	}
}
