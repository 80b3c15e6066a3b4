#!/usr/bin/env bash
# Runs a command against a real Kafka broker:
#
#	scripts/kafka-live.sh go test -count=1 -run Live ./transport/kafka
#
# The broker is Apache Kafka, the jars of Maven Central in .cache/kafka, fetched
# once. It is a single node that needs no ZooKeeper, listens on loopback only and
# keeps its data in a temporary directory. It ends with the command. Until then it
# is started again whenever it ends, so that tests may kill it: its process ID is
# in the file that GOBRIDGE_KAFKA_PID names. The command finds the broker in
# GOBRIDGE_KAFKA_BROKER and its listener with SASL in GOBRIDGE_KAFKA_SASL (user gw,
# password secret-horse); if the former is set already, nothing is started. Java 17
# and Maven are installed with apt-get if they are missing. KAFKA_VERSION=3.9.1 takes
# an older broker.
set -euo pipefail

VERSION=${KAFKA_VERSION:-4.1.0}
root=$(cd "$(dirname "$0")/.." && pwd)
lib=$root/.cache/kafka/$VERSION

[ $# -gt 0 ] || { sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2; }
if [ -n "${GOBRIDGE_KAFKA_BROKER:-}" ]; then
	echo "kafka-live: using $GOBRIDGE_KAFKA_BROKER" >&2
	exec "$@"
fi

missing=
command -v java >/dev/null || missing="openjdk-17-jre-headless"
[ -d "$lib" ] || command -v mvn >/dev/null || missing="$missing maven"
if [ -n "$missing" ]; then
	echo "kafka-live: installing$missing" >&2
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing >/dev/null
fi

work=$(mktemp -d)
keeper=
stop() {
	[ -z "$keeper" ] || kill "$keeper" 2>/dev/null || true
	[ ! -s "$work/pid" ] || kill -9 "$(cat "$work/pid")" 2>/dev/null || true
	[ -z "$keeper" ] || wait "$keeper" 2>/dev/null || true
	rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM

if [ ! -d "$lib" ]; then
	echo "kafka-live: fetching Kafka $VERSION into .cache/kafka (46 MB, once)" >&2
	mkdir -p "$work/maven"
	cat >"$work/maven/pom.xml" <<-POM
		<project xmlns="http://maven.apache.org/POM/4.0.0">
		  <modelVersion>4.0.0</modelVersion>
		  <groupId>live</groupId><artifactId>kafka</artifactId><version>1</version>
		  <dependencies>
		    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$VERSION</version></dependency>
		  </dependencies>
		</project>
	POM
	(cd "$work/maven" && mvn -B -q dependency:copy-dependencies -DoutputDirectory="$work/maven/lib" -DincludeScope=runtime) ||
		{ echo "kafka-live: the jars can't be had" >&2; exit 1; }
	mkdir -p "$(dirname "$lib")"
	mv "$work/maven/lib" "$lib.$$" && { mv -T "$lib.$$" "$lib" 2>/dev/null || rm -rf "$lib.$$"; }
fi

free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
port=${PORT:-19192}
until free "$port" && free $((port + 1)) && free $((port + 2)); do port=$((port + 3)); done

cat >"$work/server.properties" <<-PROPERTIES
	process.roles=broker,controller
	node.id=1
	controller.quorum.voters=1@127.0.0.1:$((port + 2))
	controller.listener.names=CONTROLLER
	inter.broker.listener.name=PLAINTEXT
	listeners=PLAINTEXT://127.0.0.1:$port,SASL://127.0.0.1:$((port + 1)),CONTROLLER://127.0.0.1:$((port + 2))
	listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
	log.dirs=$work/data
	auto.create.topics.enable=false
	offsets.topic.replication.factor=1
	offsets.topic.num.partitions=1
	transaction.state.log.replication.factor=1
	transaction.state.log.min.isr=1
	group.initial.rebalance.delay.ms=0
	group.min.session.timeout.ms=1000
	broker.session.timeout.ms=2000
	broker.heartbeat.interval.ms=500
	sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
	listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_gw="secret-horse";
	listener.name.sasl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
	listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
	listener.name.sasl.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
PROPERTIES

java -Xmx128m -XX:TieredStopAtLevel=1 -cp "$lib/*" kafka.tools.StorageTool format -t "$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | tr -d =)" \
	-c "$work/server.properties" --add-scram 'SCRAM-SHA-256=[name=gw,password=secret-horse]' \
	--add-scram 'SCRAM-SHA-512=[name=gw,password=secret-horse]' >"$work/format.log" 2>&1 || { cat "$work/format.log" >&2; exit 1; }

keep() {
	while :; do
		java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$lib/*" kafka.Kafka "$work/server.properties" >>"$work/server.log" 2>&1 &
		echo $! >"$work/pid"
		wait $! 2>/dev/null || true
	done
}
keep &
keeper=$!
for _ in $(seq 240); do
	free "$port" || break
	sleep 0.25
done
free "$port" && { echo "kafka-live: the broker doesn't start:" >&2; cat "$work/server.log" >&2; exit 1; }

echo "kafka-live: started Kafka $VERSION on 127.0.0.1:$port and, with SASL, $((port + 1)); process $(cat "$work/pid"), data in $work" >&2
export GOBRIDGE_KAFKA_BROKER=127.0.0.1:$port GOBRIDGE_KAFKA_SASL=127.0.0.1:$((port + 1)) GOBRIDGE_KAFKA_PID=$work/pid
"$@"
