// Package assert ends a client whose result is not the expected one.
package assert

import (
	"fmt"
	"reflect"
)

// Must returns the value of a call that has not failed.
func Must[T any](value T, err error) T {
	Check(err)
	return value
}

// Check panics with an error.
func Check(err error) {
	if err != nil {
		panic(err)
	}
}

// Expect panics unless both values are equal.
func Expect(what string, got, expected any) {
	if !reflect.DeepEqual(got, expected) {
		panic(fmt.Sprintf("%s: %v, not %v", what, got, expected))
	}
}
