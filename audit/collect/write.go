package collect

import "ipamaudit/ipam"

// Recorder x.
type Recorder struct{}

func (r *Recorder) object(ipam.Resource, object) error { return nil }
