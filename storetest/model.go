package storetest

import "testing"

// ModelOptions configure [Model].
type ModelOptions struct{}

// Model is on its way.
func Model(t *testing.T, backend Backend, options ModelOptions) { t.Helper() }
