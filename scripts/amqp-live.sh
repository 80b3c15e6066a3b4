#!/bin/sh
# Runs a command against a real RabbitMQ server:
#
#	scripts/amqp-live.sh go test -count=1 ./internal/fakeamqp ./transport/amqp
#
# The server is Debian's package rabbitmq-server, installed with apt-get if it is
# missing; no service of the system is started, neither then nor later. The node
# listens on loopback only, on ports of its own, and keeps its data, logs and Erlang
# cookie in a directory of its own, which ends with the command. The command finds
# the node in GOBRIDGE_AMQP_URL, and in GOBRIDGE_AMQP_NODE a script that controls
# it: stop, kill, start, block and unblock (by an alarm for memory). If
# GOBRIDGE_AMQP_URL is set already, nothing is started.
set -eu

[ $# -gt 0 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2; }
if [ -n "${GOBRIDGE_AMQP_URL:-}" ]; then
	echo "amqp-live: using the server that GOBRIDGE_AMQP_URL names" >&2
	exec "$@"
fi

bin=/usr/lib/rabbitmq/bin
if [ ! -x $bin/rabbitmq-server ]; then
	echo "amqp-live: installing rabbitmq-server with apt-get, without starting it" >&2
	# Debian starts a service when it installs one, unless this file refuses.
	policy=/usr/sbin/policy-rc.d
	ours=
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' >$policy
		chmod 755 $policy
		ours=$policy
	fi
	apt-get update -qq >/dev/null
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends rabbitmq-server >/dev/null
	[ -z "$ours" ] || rm -f "$ours"
fi

dir=$(mktemp -d)
port=${PORT:-$((20000 + $$ % 3000 * 4))} # below those that the system gives out
cat >"$dir/env" <<EOF
export HOME="$dir" LANG=C.UTF-8
export RABBITMQ_NODENAME=gobridge@localhost RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT=$port
export RABBITMQ_DIST_PORT=$((port + 1)) ERL_EPMD_PORT=$((port + 2)) ERL_EPMD_ADDRESS=127.0.0.1
export RABBITMQ_MNESIA_BASE="$dir/data" RABBITMQ_LOG_BASE="$dir/log" RABBITMQ_LOGS="$dir/log/node.log"
export RABBITMQ_PID_FILE="$dir/pid" RABBITMQ_CONF_ENV_FILE=/dev/null RABBITMQ_CONFIG_FILE="$dir/node"
export RABBITMQ_ENABLED_PLUGINS_FILE="$dir/plugins" RABBITMQ_GENERATED_CONFIG_DIR="$dir/generated"
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1} -start_epmd false"
export RABBITMQ_CTL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}"
EOF
printf 'max_message_size = 4194304\nheartbeat = 10\n' >"$dir/node.conf"
printf '[].\n' >"$dir/plugins"
mkdir "$dir/log"
cat >"$dir/node.sh" <<EOF
#!/bin/sh
# Controls the node: start, stop, kill, block, unblock.
set -eu
. "$dir/env"
down() { # waits until the process is gone
	while kill -0 "\$1" 2>/dev/null; do sleep 0.1; done
}
case \$1 in
start)
	# As under systemd the script becomes the node, and its process is the node's.
	RUNNING_UNDER_SYSTEMD=true setsid $bin/rabbitmq-server </dev/null >"$dir/log/console" 2>&1 &
	echo \$! >"$dir/process"
	for tick in \$(seq 600); do
		grep -qs 'Server startup complete' "$dir/log/node.log" && exit 0
		kill -0 "\$(cat "$dir/process")" 2>/dev/null || break
		sleep 0.1
	done
	cat "$dir/log/console" >&2
	exit 1 ;;
stop | kill)
	signal=TERM
	if [ "\$1" = kill ]; then
		signal=KILL
		# Which queues there are is written with a delay, and a queue that has just
		# been declared would be gone.
		$bin/rabbitmqctl -q eval 'mnesia:sync_log().' >/dev/null || true
	fi
	process=\$(cat "$dir/process")
	kill -\$signal "\$process" 2>/dev/null || true
	down "\$process"
	rm -f "$dir/log/node.log" ;;
block) $bin/rabbitmqctl -q set_vm_memory_high_watermark absolute 1 ;;
unblock) $bin/rabbitmqctl -q set_vm_memory_high_watermark 0.4 ;;
*) echo "amqp-live: \$1?" >&2; exit 2 ;;
esac
EOF
chmod 755 "$dir/node.sh"

names=
finish() {
	if [ -f "$dir/process" ]; then
		kill -KILL "$(cat "$dir/process")" 2>/dev/null || true
	fi
	[ -z "$names" ] || kill "$names" 2>/dev/null || true
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

# The names of Erlang nodes are served by a process of our own.
epmd -address 127.0.0.1 -port $((port + 2)) </dev/null >/dev/null 2>&1 &
names=$!
"$dir/node.sh" start
echo "amqp-live: started RabbitMQ on 127.0.0.1:$port (process $(cat "$dir/process")), data in $dir; its name server is process $names" >&2
GOBRIDGE_AMQP_URL=amqp://guest:guest@127.0.0.1:$port/ GOBRIDGE_AMQP_NODE=$dir/node.sh "$@"
