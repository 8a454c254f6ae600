package config

// Log says what goes to stderr.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug,info,warn,error" flag:"log-level" doc:"least important message that is printed"`
	Format string `yaml:"format" default:"text" enum:"text,json" flag:"log-format" doc:"json: one object a line"`
}
