#!/bin/sh
# Runs a command against an independent DynamoDB emulator:
#
#	scripts/dynamodb-live.sh go test -count=1 ./internal/fakedynamo ./store/dynamodb
#
# The emulator is dynoxide (crate dynoxide-rs), built once with cargo into
# .cache/dynoxide; without cargo, or if the build fails, it is moto_server from
# PyPI in .cache/moto. It keeps everything in memory, listens on loopback only and
# ends with the command. The command finds it in GOBRIDGE_DYNAMODB_ENDPOINT; if
# that is set already, the command runs against that endpoint and nothing is
# started. EMULATOR=dynoxide or EMULATOR=moto picks one.
set -eu

VERSION=3.2.0
MOTO_VERSION=5.2.1
root=$(cd "$(dirname "$0")/.." && pwd)
dynoxide=$root/.cache/dynoxide/bin/dynoxide
moto=$root/.cache/moto/bin/moto_server

[ $# -gt 0 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2; }
if [ -n "${GOBRIDGE_DYNAMODB_ENDPOINT:-}" ]; then
	echo "dynamodb-live: using $GOBRIDGE_DYNAMODB_ENDPOINT" >&2
	exec "$@"
fi

install_dynoxide() {
	[ -x "$dynoxide" ] && return 0
	command -v cargo >/dev/null || { echo "dynamodb-live: no cargo" >&2; return 1; }
	echo "dynamodb-live: building dynoxide-rs $VERSION into .cache/dynoxide (some minutes, once)" >&2
	nice -n 19 cargo install dynoxide-rs --version "$VERSION" --locked --quiet --no-default-features \
		--features native-sqlite,http-server,cli --root "$root/.cache/dynoxide" --target-dir "$root/.cache/dynoxide/target" || return 1
	rm -rf "$root/.cache/dynoxide/target"
}

install_moto() {
	[ -x "$moto" ] && return 0
	echo "dynamodb-live: installing moto $MOTO_VERSION into .cache/moto" >&2
	python3 -m venv "$root/.cache/moto" && "$root/.cache/moto/bin/pip" install -q "moto[server,dynamodb]==$MOTO_VERSION"
}

emulator=${EMULATOR:-}
if [ -z "$emulator" ]; then
	if install_dynoxide; then emulator=dynoxide; else emulator=moto; fi
fi
case $emulator in
dynoxide) install_dynoxide ;;
moto) install_moto ;;
*) echo "dynamodb-live: EMULATOR is $emulator, want dynoxide or moto" >&2; exit 2 ;;
esac

log=$(mktemp)
pid=
stop() {
	[ -z "$pid" ] || kill "$pid" 2>/dev/null || true
	rm -f "$log"
}
trap stop EXIT
trap 'exit 130' INT TERM

# A port that is taken makes the emulator end at once; then the next is tried.
port=${PORT:-18400}
for attempt in 1 2 3 4 5 6 7 8; do
	case $emulator in
	dynoxide) "$dynoxide" --host 127.0.0.1 --port "$port" >"$log" 2>&1 & ;;
	moto) "$moto" -H 127.0.0.1 -p "$port" >"$log" 2>&1 & ;;
	esac
	pid=$!
	for tick in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		sleep 0.2
		kill -0 "$pid" 2>/dev/null || break
		grep -qi -e "listening on" -e "running on" "$log" && break
	done
	kill -0 "$pid" 2>/dev/null && break
	pid=
	port=$((port + 1))
done
[ -n "$pid" ] || { echo "dynamodb-live: $emulator doesn't start:" >&2; cat "$log" >&2; exit 1; }

echo "dynamodb-live: started $emulator, in memory, on http://127.0.0.1:$port (process $pid)" >&2
GOBRIDGE_DYNAMODB_ENDPOINT=http://127.0.0.1:$port "$@"
