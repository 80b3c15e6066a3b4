#!/bin/sh
# Runs a command against a real MQTT broker:
#
#	scripts/mqtt-live.sh go test -count=1 -run Live ./transport/mqtt
#
# The broker is Debian's package mosquitto, installed with apt-get if it is missing,
# without starting its service. It listens on loopback only, on a free port, and keeps
# its sessions in a directory that ends with the command. The command finds it in
# GOBRIDGE_MQTT_URL, and in GOBRIDGE_MQTT_NODE a script that controls it: start,
# stop (with its sessions saved) and kill; and in GOBRIDGE_MQTT_STRICT_URL a second
# one that lets nobody publish below forbidden/. If GOBRIDGE_MQTT_URL is set already,
# nothing is started.
set -eu

[ $# -gt 0 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; }
if [ -n "${GOBRIDGE_MQTT_URL:-}" ]; then
	echo "mqtt-live: using the broker that GOBRIDGE_MQTT_URL names" >&2
	exec "$@"
fi

broker=$(command -v mosquitto || echo /usr/sbin/mosquitto)
if [ ! -x "$broker" ]; then
	echo "mqtt-live: installing mosquitto with apt-get, without starting it" >&2
	policy=/usr/sbin/policy-rc.d # keeps Debian from starting services when it installs them
	ours=
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' >$policy
		chmod 755 $policy
		ours=$policy
	fi
	apt-get update -qq >/dev/null
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mosquitto >/dev/null
	[ -z "$ours" ] || rm -f "$ours"
fi

dir=$(mktemp -d)
port=${PORT:-$((10000 + $$ % 4500 * 2))} # below those that the system gives out
mkdir "$dir/node" "$dir/strict"
cat >"$dir/node/conf" <<EOF
listener $port 127.0.0.1
allow_anonymous true
persistence true
persistence_location $dir/node/
max_inflight_messages 200
max_queued_messages 100000
max_packet_size 262144
set_tcp_nodelay true
EOF
# An acl_file is for the second one only: with it, mosquitto 2.0.11 drops what is
# published for a session after a restart until its client has connected again.
cat >"$dir/strict/conf" <<EOF
listener $((port + 1)) 127.0.0.1
allow_anonymous true
acl_file $dir/strict/acl
EOF
printf 'topic readwrite #\ntopic deny forbidden/#\n' >"$dir/strict/acl"
if [ "$(id -u)" = 0 ]; then
	echo "user root" | tee -a "$dir/node/conf" >>"$dir/strict/conf"
fi

cat >"$dir/control.sh" <<EOF
#!/bin/sh
# Controls a broker: start, stop, kill; the second argument says which.
set -eu
in=$dir/\${2:-node}
case \$1 in
start)
	setsid "$broker" -c "\$in/conf" </dev/null >>"\$in/log" 2>&1 &
	echo \$! >"\$in/process"
	for tick in \$(seq 200); do
		grep -qs "mosquitto version .* running" "\$in/log" && exit 0
		kill -0 "\$(cat "\$in/process")" 2>/dev/null || break
		sleep 0.05
	done
	cat "\$in/log" >&2
	exit 1 ;;
stop | kill)
	signal=TERM
	[ "\$1" = stop ] || signal=KILL
	process=\$(cat "\$in/process")
	kill -\$signal "\$process" 2>/dev/null || true
	for tick in \$(seq 200); do
		grep -qs "^State:.*[RSD] " "/proc/\$process/status" || break # gone, or dead and not reaped
		sleep 0.05
	done
	rm -f "\$in/log" ;;
*) echo "mqtt-live: \$1?" >&2; exit 2 ;;
esac
EOF
chmod 755 "$dir/control.sh"

finish() {
	for process in "$dir"/*/process; do
		[ ! -f "$process" ] || kill -KILL "$(cat "$process")" 2>/dev/null || true
	done
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

"$dir/control.sh" start node
"$dir/control.sh" start strict
echo "mqtt-live: started mosquitto on 127.0.0.1:$port and $((port + 1)) (processes $(cat "$dir/node/process") and $(cat "$dir/strict/process")), sessions in $dir" >&2
export GOBRIDGE_MQTT_URL=mqtt://127.0.0.1:$port GOBRIDGE_MQTT_STRICT_URL=mqtt://127.0.0.1:$((port + 1)) GOBRIDGE_MQTT_NODE="$dir/control.sh"
"$@"
