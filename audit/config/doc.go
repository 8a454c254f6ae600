// Package config is the configuration of ipamaudit: one struct and one file per section.
//
// A struct field is the only description of a setting. Its tags carry name, default, limits and
// documentation, and from them come the strict reading of the file, the merge with environment and
// flags, the JSON Schema, `config view` and config.example.yaml. The tags:
//
//	yaml      the key in the file; the environment name is derived from the path
//	default   text of the default value (absent: zero)
//	doc       one line, shown in the example and in the schema
//	enum      allowed values, separated by commas
//	min, max  limits of a number or a duration
//	format    a named syntax, see formats.go
//	required  "true": the key must be there (in items of lists)
//	flag      the command-line flag that overrides the setting
//	example   the value shown in the example where the default would say nothing
//
// What one field cannot say, such as "one of these two", is in the section's validate().
package config

//go:generate go test . -run TestExampleFile -update
