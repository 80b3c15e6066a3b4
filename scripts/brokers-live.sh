#!/bin/sh
# Runs a command against a real NATS server, a real RabbitMQ and a real Mosquitto:
#
#	scripts/brokers-live.sh go test -count=1 -v -run Live ./chain
#
# Each is started as nats-live.sh, amqp-live.sh and mqtt-live.sh say, and ends with
# the command.
set -eu

[ $# -gt 0 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
scripts=$(dirname "$0")
"$scripts/nats-live.sh" "$scripts/amqp-live.sh" "$scripts/mqtt-live.sh" "$@"
