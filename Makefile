# gobridge: the targets that people use. `make` lists them.

GO      ?= go
BIN     := bin/gobridge
TOOL    := $(GO) tool -modfile=tools/go.mod
ROUNDS  ?= 100
# Modules of their own that have tests.
NESTED  := examples/embed tools/ormtest watermill
FUZZTIME ?= 30s
# Tests of processes on a DynamoDB table.
ON_TABLE := TestCutOff|TestRollingRestartOfAll/table

# Everything is compiled as the binary is that people run, the race detector's aside: no
# package twice.
export CGO_ENABLED ?= 0
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

.DEFAULT_GOAL := help
.PHONY: help run demo build test test-live test-ops race lint fuzz model bench bench-transports bench-dynamodb bench-looking torture chain kill docs

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## build and run the bridge with examples/quickstart.yaml
	./$(BIN) run examples/quickstart.yaml

demo: build ## a bridge through a bad quarter of a minute, and the count of what arrived
	./$(BIN) demo

build: ## build bin/gobridge
	$(GO) build -o $(BIN) ./cmd/gobridge

test: ## all hermetic tests
	$(GO) vet ./...
	$(GO) test -shuffle=on -timeout 25m ./...
	@set -e; for module in $(NESTED); do \
		echo "== $$module"; (cd $$module && $(GO) vet ./... && $(GO) test -shuffle=on ./...); \
	done

test-live: ## against real brokers and independent emulators of AWS (installed or built on the first run: minutes)
	scripts/dynamodb-live.sh $(GO) test -count=1 ./internal/fakedynamo ./store/dynamodb
	TORTURE_ROUNDS=10 scripts/dynamodb-live.sh $(GO) test -count=1 -v -run '$(ON_TABLE)' ./torture
	scripts/nats-live.sh $(GO) test -count=1 -run Live ./transport/nats
	scripts/amqp-live.sh $(GO) test -count=1 ./internal/fakeamqp ./transport/amqp
	scripts/mqtt-live.sh $(GO) test -count=1 -run Live ./transport/mqtt
	scripts/kafka-live.sh $(GO) test -count=1 -run Live ./transport/kafka
	scripts/aws-live.sh $(GO) test -count=1 -run Live ./transport/sqs
	scripts/brokers-live.sh $(GO) test -count=1 -v -run Live ./chain

test-ops: ## the web console in headless Chromium, and the alert rules with promtool (installed if missing)
	scripts/promtool.sh
	scripts/console-browser.sh

# By default each process under the detector that ends well sleeps for a second first, for
# goroutines that may still race. Those of tests have ended by then, as goleak checks where
# there are any; and the tests run hundreds of commands, each a process.
race: ## the same tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 $(GO) test -race -shuffle=on -timeout 25m ./...

lint: ## golangci-lint, as pinned in tools/go.mod
	$(TOOL) golangci-lint run ./...

fuzz: ## every fuzz target for FUZZTIME (30s) each
	@set -e; for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		for target in $$(grep -ho --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' -r $$dir --exclude-dir='?*' | sed 's/func //' | sort -u); do \
			echo "== $$dir $$target"; $(GO) test -run='^$$' -fuzz="^$$target$$" -fuzztime=$(FUZZTIME) $$dir; \
		done; done

model: ## explore the protocol in the bigger setups, too (minutes, under a gigabyte)
	MODEL=big $(GO) test -count=1 -v -timeout 1h ./protocol

kill: ## kill, freeze, cut off and restart the real binary under load, fill its disk (two minutes)
	TORTURE_ROUNDS=4 $(GO) test -count=1 -v ./torture

torture: ## the same with ROUNDS (100) rounds, tables in the emulator; TORTURE_SEED repeats a run
	TORTURE_ROUNDS=$(ROUNDS) scripts/dynamodb-live.sh $(GO) test -count=1 -v -timeout 3h ./torture

chain: ## 100,000 messages through three processes and real brokers, killed and cut off all the time (4 minutes)
	CHAIN_MESSAGES=100000 scripts/brokers-live.sh $(GO) test -count=1 -v -timeout 30m -run LiveChain ./chain

bench: ## measure store, drainer and the real binary; prints one table (about 4 minutes)
	$(GO) run ./bench
	$(GO) test -run='^$$' -bench=UserTransactions -benchtime=20000x ./store/sqlite
	$(GO) test -run='^$$' -bench=ForeignCommit -benchtime=1000x ./store/sqlite

bench-transports: ## messages per second and latency from broker to broker, beside a plain loop (3 minutes)
	$(GO) test -run='^$$' -bench=Pairs -benchtime=10000x ./chain
	$(GO) test -run='^$$' -bench=Bridge -benchtime=10000x ./transport/mqtt ./transport/sqs

bench-dynamodb: ## count calls, units and conflicts of the DynamoDB store per message (about 5 minutes)
	GOBRIDGE_DYNAMODB_UNITS=1 $(GO) test -count=1 -v -timeout 30m -run 'TestUnitTable|TestPointerTable|TestIdleTable' ./store/dynamodb

bench-looking: ## what pages, scrapes and streams read at a million pending; a hundred consoles against the delivery rate (4 minutes)
	GOBRIDGE_COST=1 $(GO) test -count=1 -v -timeout 30m -run Cost ./faults
	$(GO) test -run='^$$' -bench=HundredConsoles -benchtime=1x -timeout 30m ./faults

docs: ## write docs/configuration.md, the JSON schema and docs/metrics.md anew from the code
	$(GO) generate ./config/...
	GOBRIDGE_WRITE_DOCS=1 $(GO) test -count=1 -run TestMetricsPageIsTheList ./cmd/gobridge
