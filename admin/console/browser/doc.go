// Package browser tests the web console in a real browser: Chromium, headless. It is
// a module of its own, so that nobody else compiles what drives a browser.
//
//	scripts/console-browser.sh
//
// installs Chromium if it is missing and runs the tests. With
// GOBRIDGE_CONSOLE_PICTURES set to a folder, they leave pictures of every page there:
// light, dark and as on a phone; empty, full and in trouble.
package browser
