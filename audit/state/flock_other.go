//go:build !unix || aix || solaris

package state

import (
	"errors"
	"os"
)

var errWouldBlock = errors.New("locked")

func tryFlock(*os.File) error { return errors.ErrUnsupported }

func syncDir(string) error { return nil }
