package report

import (
	"bytes"
	"testing"
)

// The encoder hands text over wherever its buffer is full: also within a character.
func TestInvisibleAcrossWrites(t *testing.T) {
	const in, want = "{\n \"a\u202eé\U000E0001\x1b\"}", "{\n \"a\\u202eé\\udb40\\udc01\\u001b\"}"
	for size := 1; size <= len(in); size++ {
		var out bytes.Buffer
		v := &invisible{w: &out}
		for rest := []byte(in); len(rest) > 0; {
			n := min(size, len(rest))
			if m, err := v.Write(rest[:n]); m != n || err != nil {
				t.Fatal(m, err)
			}
			rest = rest[n:]
		}
		if out.String() != want {
			t.Errorf("by %d bytes: %q, want %q", size, out.String(), want)
		}
	}
}
