#!/bin/sh
# Tests the web console in a real browser, headless Chromium:
#
#	scripts/console-browser.sh
#	PICTURES=/tmp/console scripts/console-browser.sh -run EveryPage
#
# The browser is the one that CHROMIUM names, or Debian's, which is installed with
# apt-get if it is missing. Further arguments go to go test. With PICTURES, pictures of
# every page are left in that directory: light, dark and as on a phone; empty, full, in
# trouble, and as the role read sees it.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${CHROMIUM:-}" ] && [ ! -x /usr/bin/chromium ]; then
	echo "console-browser: installing chromium with apt-get" >&2
	apt-get update -qq >/dev/null
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
fi
if [ -n "${PICTURES:-}" ]; then
	mkdir -p "$PICTURES"
	GOBRIDGE_CONSOLE_PICTURES=$(cd "$PICTURES" && pwd)
	export GOBRIDGE_CONSOLE_PICTURES
fi
cd "$root/admin/console/browser"
go vet ./...
exec go test -count=1 "$@" ./...
