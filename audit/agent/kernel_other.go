//go:build !linux

package agent

import "errors"

// ReadKernel only works on Linux.
func ReadKernel() (Kernel, error) { return Kernel{}, errors.New("route tables are only read on Linux") }
