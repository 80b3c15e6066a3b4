package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version says which build this is: the module's version, the commit and the
// Go it was built with.
func version() string {
	module, commit := "(devel)", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			module = info.Main.Version
		}
		modified := ""
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				modified = " with changes"
			}
		}
		commit += modified
	}
	return fmt.Sprintf("gobridge %s, commit %s, %s %s/%s", module, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
