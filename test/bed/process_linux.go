package bed

import "syscall"

// dieWithParent keeps no API server behind when the test binary is killed (by
// go test's timeout for instance) and cannot clean up. A process group of its
// own keeps a terminal's Ctrl-C for the parent, which then stops it in order.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
