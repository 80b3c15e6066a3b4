#!/bin/sh
# Runs a command against a real NATS server:
#
#	scripts/nats-live.sh go test -count=1 -run Live ./transport/nats
#
# The server is nats-server as pinned in go.mod, built from the module cache, or with
# SERVER=debian Debian's package, an older one, installed with apt-get if it is
# missing; no service of the system is started. It listens on loopback only, on a free
# port, and keeps its data in a directory of its own, which ends with the command. The
# command finds it in GOBRIDGE_NATS_URL, and in GOBRIDGE_NATS_NODE a script that
# controls it: start, stop and kill. If GOBRIDGE_NATS_URL is set already, nothing is
# started.
set -eu

[ $# -gt 0 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2; }
if [ -n "${GOBRIDGE_NATS_URL:-}" ]; then
	echo "nats-live: using the server that GOBRIDGE_NATS_URL names" >&2
	exec "$@"
fi
root=$(cd "$(dirname "$0")/.." && pwd)
dir=$(mktemp -d)
finish() {
	if [ -f "$dir/process" ]; then
		kill -KILL "$(cat "$dir/process")" 2>/dev/null || true
	fi
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

case ${SERVER:-module} in
module)
	bin=$dir/nats-server
	(cd "$root" && go build -o "$bin" github.com/nats-io/nats-server/v2) ;;
debian)
	bin=/usr/sbin/nats-server
	if [ ! -x $bin ]; then
		echo "nats-live: installing nats-server with apt-get, without starting it" >&2
		# Debian starts a service when it installs one, unless this file refuses.
		policy=/usr/sbin/policy-rc.d
		ours=
		if [ ! -e $policy ]; then
			printf '#!/bin/sh\nexit 101\n' >$policy
			chmod 755 $policy
			ours=$policy
		fi
		apt-get update -qq >/dev/null
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nats-server >/dev/null
		[ -z "$ours" ] || rm -f "$ours"
	fi ;;
*) echo "nats-live: SERVER is $SERVER, want module or debian" >&2; exit 2 ;;
esac

cat >"$dir/node.sh" <<END
#!/bin/sh
# Controls the server: start, stop, kill.
set -eu
case \$1 in
start)
	# A free port at first, and the same one afterwards.
	port=\$(cat "$dir/port" 2>/dev/null || echo -1)
	rm -rf "$dir/ports"
	mkdir "$dir/ports"
	setsid "$bin" -a 127.0.0.1 -p "\$port" -js -sd "$dir/data" --ports_file_dir "$dir/ports" </dev/null >>"$dir/log" 2>&1 &
	process=\$!
	echo \$process >"$dir/process"
	for tick in \$(seq 300); do
		if grep -qs 'nats://' "$dir"/ports/*.ports; then
			grep -oh 'nats://127.0.0.1:[0-9]*' "$dir"/ports/*.ports | head -n 1 | sed 's/.*://' >"$dir/port"
			exit 0
		fi
		kill -0 \$process 2>/dev/null || break
		sleep 0.1
	done
	cat "$dir/log" >&2
	exit 1 ;;
stop | kill)
	signal=TERM
	[ "\$1" = stop ] || signal=KILL
	process=\$(cat "$dir/process")
	kill -\$signal "\$process" 2>/dev/null || true
	while kill -0 "\$process" 2>/dev/null; do sleep 0.05; done ;;
*) echo "nats-live: \$1?" >&2; exit 2 ;;
esac
END
chmod 755 "$dir/node.sh"

"$dir/node.sh" start
echo "nats-live: started $("$bin" --version) on 127.0.0.1:$(cat "$dir/port") (process $(cat "$dir/process")), data in $dir" >&2
GOBRIDGE_NATS_URL=nats://127.0.0.1:$(cat "$dir/port") GOBRIDGE_NATS_NODE=$dir/node.sh "$@"
