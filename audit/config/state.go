package config

// State says where a run finds what the last one knew, and leaves the same for the next.
type State struct {
	File      string    `yaml:"file" doc:"file; its directory must be writable"`
	ConfigMap ConfigMap `yaml:"configMap" doc:"or a ConfigMap of the cluster this program runs in"`
}

// ConfigMap names the object that keeps the state.
type ConfigMap struct {
	Namespace string `yaml:"namespace" format:"dns" doc:"empty: the namespace this program runs in"`
	Name      string `yaml:"name" format:"dns" doc:"name of the ConfigMap"`
}

// IsSet tells whether a ConfigMap is named.
func (c ConfigMap) IsSet() bool { return c.Name != "" }

// IsSet tells whether anything is remembered at all.
func (s State) IsSet() bool { return s.File != "" || s.ConfigMap.IsSet() }

func (s *State) validate(f *findings) {
	switch {
	case s.File != "" && s.ConfigMap.IsSet():
		f.fail("state.configMap", "is set together with state.file: keep one of the two")
	case s.ConfigMap.Namespace != "" && s.ConfigMap.Name == "":
		f.fail("state.configMap.name", "is required with a namespace")
	}
}
