#!/bin/sh
# Runs a command against an independent emulator of SQS and SNS:
#
#	scripts/aws-live.sh go test -count=1 -run Live ./transport/sqs
#
# The emulator is moto_server from PyPI, installed once into .cache/aws-moto. It keeps
# everything in memory, listens on loopback only, on a free port, and ends with the
# command. The command finds it in GOBRIDGE_AWS_ENDPOINT; if that is set already, the
# command runs against that endpoint and nothing is started.
set -eu

MOTO_VERSION=5.2.1
root=$(cd "$(dirname "$0")/.." && pwd)
moto=$root/.cache/aws-moto/bin/moto_server

[ $# -gt 0 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
if [ -n "${GOBRIDGE_AWS_ENDPOINT:-}" ]; then
	echo "aws-live: using $GOBRIDGE_AWS_ENDPOINT" >&2
	exec "$@"
fi
if [ ! -x "$moto" ]; then
	echo "aws-live: installing moto $MOTO_VERSION into .cache/aws-moto (once)" >&2
	python3 -m venv "$root/.cache/aws-moto"
	"$root/.cache/aws-moto/bin/pip" install -q "moto[server,sqs,sns]==$MOTO_VERSION"
fi

log=$(mktemp)
pid=
stop() {
	[ -z "$pid" ] || kill "$pid" 2>/dev/null || true
	rm -f "$log"
}
trap stop EXIT
trap 'exit 130' INT TERM

"$moto" -H 127.0.0.1 -p 0 >"$log" 2>&1 &
pid=$!
port=
tick=0
while [ -z "$port" ]; do
	kill -0 "$pid" 2>/dev/null && [ $tick -lt 300 ] || { echo "aws-live: moto doesn't start:" >&2; cat "$log" >&2; exit 1; }
	sleep 0.2
	tick=$((tick + 1))
	port=$(sed -n 's|.*http://127.0.0.1:\([1-9][0-9]*\).*|\1|p' "$log" | head -n 1)
done

echo "aws-live: started moto, in memory, on http://127.0.0.1:$port (process $pid)" >&2
GOBRIDGE_AWS_ENDPOINT=http://127.0.0.1:$port "$@"
