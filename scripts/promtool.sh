#!/usr/bin/env bash
# Checks the alert rules and runs their tests, with promtool: the one on the PATH, or
# that of Debian's prometheus package, which is installed if it is missing.
set -euo pipefail
cd "$(dirname "$0")/../ops/prometheus"
if ! command -v promtool >/dev/null; then
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends prometheus
fi
promtool check rules alerts.yml
promtool test rules alerts_test.yml
