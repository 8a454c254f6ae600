// Command image packs a static ipamaudit binary and a CA bundle into a container image, without a Docker daemon.
// The result is a docker-archive tar, which `docker load`, `podman load`, `ctr images import`,
// `kind load image-archive`, `crane push` and `skopeo copy docker-archive:…` read.
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	opts, err := parse(os.Args[1:])
	if err == nil {
		err = write(opts)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&o.Binary, "binary", "", "the static Linux `file` to pack")
	flags.StringVar(&o.Arch, "arch", "amd64", "architecture of the image: amd64 or arm64")
	flags.StringVar(&o.CABundle, "ca-bundle", "/etc/ssl/certs/ca-certificates.crt", "certificate authorities (PEM `file`) that the image trusts")
	flags.StringVar(&o.Image, "image", "ipamaudit:devel", "`name:tag` of the image in the tar")
	flags.StringVar(&o.Version, "version", "devel", "version label")
	flags.StringVar(&o.Revision, "revision", "unknown", "source revision label")
	flags.StringVar(&o.Out, "o", "ipamaudit.tar", "tar `file` to write")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 || o.Binary == "" {
		return options{}, fmt.Errorf("want -binary and no other arguments, got %q", flags.Args())
	}
	created, err := sourceDateEpoch(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return options{}, err
	}
	o.Created = created
	return o, nil
}

// sourceDateEpoch is the one timestamp of the image, so that the same inputs give the same bytes
// (https://reproducible-builds.org/specs/source-date-epoch/). Unset means 1970.
func sourceDateEpoch(value string) (time.Time, error) {
	if value == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH must be seconds since 1970: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
