// Package state keeps what a run remembers for the next one, in a file or in a
// ConfigMap. Both hold the same JSON, which people can read. A state that is
// damaged or of a later schema is an error that says what to do; it is never
// overwritten.
package state
