package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gobridge/config"
)

// bad are files with what is reported about them, a line each. With schema, the
// JSON Schema refuses the file too.
var bad = []struct {
	name   string
	text   string
	want   []string
	schema bool
}{
	{name: "empty", text: "", want: []string{
		"b.yaml:1:1: the file is empty; write at least version, store and routes"}},
	{name: "only a comment", text: "# nothing\n", want: []string{
		"b.yaml:1:1: the file is empty; write at least version, store and routes"}},
	{name: "a list", text: "- version: 1\n", schema: true, want: []string{
		"b.yaml:1:1: expected a mapping, found a list; write it as name: value, or in { }"}},
	{name: "nothing of what is required", text: "log: {}\n", schema: true, want: []string{
		"b.yaml:1:1: version is missing; add version: The version of this format: 1.",
		"b.yaml:1:1: store is missing; add store: Where the outbox is kept.",
		"b.yaml:1:1: routes is missing; add routes: The routes, by name. A name is part of the identity of stored messages: renaming a route with messages waiting is removing it."}},
	{name: "syntax", text: "version: 1\nstore: { memory: {}\nroutes: {}\n", want: []string{
		"b.yaml:3:1: YAML: while parsing a flow mapping: did not find expected ',' or '}'; check the indentation, and that brackets and quotes are closed"}},
	{name: "tab", text: "version: 1\nstore:\n\tmemory: {}\n", want: []string{
		"b.yaml:3:1: YAML: while scanning for the next token: a tab where a value or an indentation is expected; indent with spaces"}},
	{name: "special character", text: "version: 1\nstore: @x\n", want: []string{
		"b.yaml:2:8: YAML: while scanning for the next token: found character that cannot start any token; put a value that begins with a special character in quotes"}},
	{name: "not UTF-8", text: "version: 1\nstore: {}  # caf\xe9\n", want: []string{
		"b.yaml:2:17: the byte 0xe9 is not UTF-8; save it as UTF-8 text"}},
	{name: "NUL", text: "version: 1\n\x00", want: []string{
		"b.yaml:2:1: the character U+0000 is a control character; save it as UTF-8 text"}},
	{name: "UTF-16", text: "\xff\xfev\x00", want: []string{
		"b.yaml:1:1: the file is UTF-16; save it as UTF-8 text"}},
	{name: "reference in braces", text: "version: 1\nstore: { sqlite: { path: ${DB} } }\n", want: []string{
		"b.yaml:2:27: YAML: while parsing a flow mapping: did not find expected ',' or '}'; inside { } and [ ], put a value with ${...} in quotes"}},
	{name: "secret that looks like an alias", text: "version: 1\nstore: {}\nroutes: *hunter2\n", want: []string{
		"b.yaml:3:9: YAML: an alias (*) has no anchor (&); put a value that begins with * in quotes"}},
	{name: "two documents", text: small + "---\n" + small, want: []string{
		"b.yaml:5:1: a second document begins here; one file has one document; remove what follows ---"}},
	{name: "version", text: edit("version: 1", "version: 2"), schema: true, want: []string{
		`b.yaml:2:10: "2" is out of bounds; at version; write 1`}},
	{name: "version in quotes", text: edit("version: 1", `version: "1"`), schema: true, want: []string{
		"b.yaml:2:10: expected an integer, found a string; at version; write it in decimal digits, without quotes"}},
	{name: "unknown fields", text: edit("version: 1", "version: 1\nlease_trem: 5s\nextra: {}\nhttp: {lisen: x}\n<<: {}"), schema: true, want: []string{
		`b.yaml:3:1: unknown field "lease_trem"; did you mean lease_term?`,
		`b.yaml:4:1: unknown field "extra"; the fields here are version, store, http, connections, telemetry, admin, routes, parked, repartitioned, log, lease_term and grace`,
		`b.yaml:5:8: unknown field "lisen"; at http; did you mean listen?`,
		`b.yaml:6:1: unknown field "<<"; merge keys are not supported; write the fields out, or use an alias for a whole value`}},
	{name: "misspelt required field", text: edit("store:", "stoer:"), schema: true, want: []string{
		`b.yaml:3:1: unknown field "stoer"; did you mean store?`}},
	{name: "fields where there are none", text: edit("stdout: {}", "stdout: {path: x}"), schema: true, want: []string{
		`b.yaml:4:74: unknown field "path"; at routes.r.bindings.b.stdout; there are no fields here`}},
	{name: "field twice", text: edit("version: 1", "version: 1\ngrace: 1s\ngrace: 2s"), want: []string{
		`b.yaml:4:1: "grace" is given twice, first on line 3; at grace; keep one`}},
	{name: "name twice", text: edit("b: { stdout: {} }", "b: { stdout: {} }, b: { stdout: {} }"), want: []string{
		`b.yaml:4:79: "b" is given twice, first on line 4; at routes.r.bindings.b; keep one`}},
	{name: "no store", text: edit("{ memory: {} }", "{}"), schema: true, want: []string{
		"b.yaml:3:8: no kind of store is given; at store; write sqlite or dynamodb or memory"}},
	{name: "two stores", text: edit("{ memory: {} }", "{ memory: {}, sqlite: { path: x } }"), schema: true, want: []string{
		"b.yaml:3:22: memory and sqlite are given; there is one kind of store here; at store; keep one"}},
	{name: "empty store", text: edit("{ memory: {} }", "{ memory: }"), schema: true, want: []string{
		"b.yaml:3:18: expected a mapping, found nothing; at store.memory; write {} if there is nothing to set"}},
	{name: "no routes", text: edit("{ r: { source: { http: { path: /r } }, bindings: { b: { stdout: {} } } } }", "{}"), schema: true, want: []string{
		"b.yaml:4:9: it is empty; at routes; add at least one"}},
	{name: "route without source and bindings", text: edit("source: { http: { path: /r } }, bindings: { b: { stdout: {} } }", ""), schema: true, want: []string{
		"b.yaml:4:14: source is missing; at routes.r; add source: Where messages come from.",
		"b.yaml:4:14: bindings is missing; at routes.r; add bindings: The destinations, by name. Each gets every message that its filter takes, independently of the others."}},
	{name: "no bindings", text: edit("{ b: { stdout: {} } }", "{}"), schema: true, want: []string{
		"b.yaml:4:58: it is empty; at routes.r.bindings; add at least one"}},
	{name: "no destination", text: edit("{ stdout: {} }", "{ rate: 1/s }"), schema: true, want: []string{
		"b.yaml:4:63: no destination is given; at routes.r.bindings.b; write webhook or kafka or nats or sqs or sns or mqtt or amqp or file or stdout"}},
	{name: "misspelt destination", text: edit("stdout: {}", "sdtout: {}"), schema: true, want: []string{
		`b.yaml:4:65: unknown field "sdtout"; at routes.r.bindings.b; did you mean stdout?`}},
	{name: "two destinations", text: edit("stdout: {}", "stdout: {}, file: { path: x }"), schema: true, want: []string{
		"b.yaml:4:77: stdout and file are given; there is one destination here; at routes.r.bindings.b; keep one"}},
	{name: "names", text: edit("b: { stdout: {} }", `a/b: { stdout: {} }, "": { stdout: {} }, a.b: { sink: {} }`), schema: true, want: []string{
		`b.yaml:4:60: "a/b" is not a name; at routes.r.bindings; like orders or crm-eu`,
		`b.yaml:4:81: "" is not a name; at routes.r.bindings; like orders or crm-eu`,
		`b.yaml:4:106: no destination is given; at routes.r.bindings."a.b"; write webhook or kafka or nats or sqs or sns or mqtt or amqp or file or stdout`,
		`b.yaml:4:108: unknown field "sink"; at routes.r.bindings."a.b"; the fields here are webhook, kafka, nats, sqs, sns, mqtt, amqp, file, stdout, filter, rate, max_outbox_depth, on_full, retry, on_failure, unhealthy_after and concurrency`}},
	{name: "types", text: edit("version: 1", "version: [1]\nhttp: 8080\nlog: { level: 3, format: [] }\nparked: old"), schema: true, want: []string{
		"b.yaml:2:10: expected an integer, found a list; at version; write it in decimal digits, without quotes",
		"b.yaml:3:7: expected a mapping, found an integer; at http; write {} if there is nothing to set",
		"b.yaml:4:15: expected a string, found an integer; at log.level; put it in quotes",
		"b.yaml:4:26: expected a string, found a list; at log.format; put it in quotes",
		"b.yaml:5:9: expected a list, found a string; at parked; write it in [ ]"}},
	{name: "durations", text: edit("version: 1", "version: 1\ngrace: 10\nlease_term: 5 seconds"), schema: true, want: []string{
		"b.yaml:3:8: expected a duration, found an integer; at grace; write numbers with units, like 20s, 1h30m or 7d",
		`b.yaml:4:13: "5 seconds" is not a duration; at lease_term; write numbers with units, like 20s, 1h30m or 7d`}},
	{name: "durations out of bounds", text: edit("version: 1", "version: 1\ngrace: 0s\nlease_term: 200000d"), want: []string{
		`b.yaml:3:8: "0s" is not above zero; at grace; write numbers with units, like 20s, 1h30m or 7d`,
		`b.yaml:4:13: "200000d" is too long a duration; at lease_term; write numbers with units, like 20s, 1h30m or 7d`}},
	{name: "enums", text: edit("version: 1", "version: 1\nlog: { level: warning, format: xml }"), schema: true, want: []string{
		`b.yaml:3:15: "warning" is not one of the values allowed; at log.level; write debug, info, warn, error`,
		`b.yaml:3:32: "xml" is not one of the values allowed; at log.format; write text, json`}},
	{name: "values of a binding", text: edit("stdout: {}", `stdout: {}, rate: 20, concurrency: 0, max_outbox_depth: 10k, on_full: reject_, retry: { attempts: 1.5, backoff: 1s }`), schema: true, want: []string{
		"b.yaml:4:83: expected a rate, found an integer; at routes.r.bindings.b.rate; write a number per second, minute or hour, like 20/s, 100/m or 1000/h",
		`b.yaml:4:100: "0" is out of bounds; at routes.r.bindings.b.concurrency; write 1 to 1024`,
		"b.yaml:4:121: expected an integer, found a string; at routes.r.bindings.b.max_outbox_depth; write it in decimal digits, without quotes",
		`b.yaml:4:135: "reject_" is not one of the values allowed; at routes.r.bindings.b.on_full; did you mean reject?`,
		"b.yaml:4:163: expected an integer, found a number that is no plain integer; at routes.r.bindings.b.retry.attempts; write it in decimal digits, without quotes",
		`b.yaml:4:177: "1s" is not a range of durations; at routes.r.bindings.b.retry.backoff; write the shortest and the longest wait, like 1s..1h`}},
	{name: "backwards", text: edit("stdout: {}", `stdout: {}, retry: { backoff: 1h..1s }`), want: []string{
		`b.yaml:4:95: "1h..1s" begins above its end; at routes.r.bindings.b.retry.backoff; write the shortest and the longest wait, like 1s..1h`}},
	{name: "source", text: edit("path: /r", `path: orders, headers: ["x tenant"], max_body: 1MB, auth: { bearer: 12345 }`), schema: true, want: []string{
		`b.yaml:4:40: "orders" does not start with a slash; at routes.r.source.http.path; write a path of letters, digits and -._~ between slashes, like /orders or /v1/orders`,
		`b.yaml:4:58: "x tenant" is not a header name; at routes.r.source.http.headers[0]; write the name of a header, like x-tenant`,
		`b.yaml:4:81: "1MB" is not a size; at routes.r.source.http.max_body; write bytes, like 65536, 256KiB or 1MiB`,
		`b.yaml:4:102: expected a secret, found an integer; at routes.r.source.http.auth.bearer; put it in quotes, or take it from outside with ${file:PATH} or ${NAME}`}},
	{name: "unclean path", text: edit("path: /r", "path: /r/../s"), want: []string{
		`b.yaml:4:40: "/r/../s" is not a clean path; at routes.r.source.http.path; write a path of letters, digits and -._~ between slashes, like /orders or /v1/orders`}},
	{name: "address", text: edit("version: 1", "version: 1\nhttp: { listen: localhost }"), schema: true, want: []string{
		`b.yaml:3:17: "localhost" is not an address; at http.listen; write host:port, like 127.0.0.1:8080`}},
	{name: "one port for two", text: edit("version: 1", "version: 1\nhttp: { listen: localhost:8080 }\nadmin: { listen: 127.0.0.1:8080, tokens: { read: sixteen-characters } }"), want: []string{
		`b.yaml:4:18: port 8080 is that of http.listen too, localhost:8080; at admin.listen; give each a port of its own`}},
	{name: "the port of a default", text: edit("version: 1", "version: 1\nhttp: { listen: 0.0.0.0:9090 }\nadmin: { tokens: { read: sixteen-characters } }"), want: []string{
		`b.yaml:3:17: port 9090 is that of admin.listen too, 127.0.0.1:9090; at http.listen; give each a port of its own`}},
	{name: "port", text: edit("version: 1", "version: 1\nhttp: { listen: localhost:99999 }"), want: []string{
		`b.yaml:3:17: "localhost:99999" has no port from 0 to 65535; at http.listen; write host:port, like 127.0.0.1:8080`}},
	{name: "webhook", text: edit("stdout: {}", `webhook: { url: "ftp://u:hunter2@h", headers: { "a b": x, c: "x\ny" } }`), schema: true, want: []string{
		"b.yaml:4:81: the value is not an http or https URL; at routes.r.bindings.b.webhook.url; write a URL like https://example.com/hook",
		`b.yaml:4:113: "a b" is not a header name; at routes.r.bindings.b.webhook.headers; write the name of a header, like x-tenant`,
		"b.yaml:4:126: the value has a control character, which no header can have; at routes.r.bindings.b.webhook.headers.c"}},
	{name: "secrets", text: edit("stdout: {}", `webhook: { url: "http://h", secrets: ["hunter2", "aHVudGVyMg==", ""] }`), want: []string{
		"b.yaml:4:103: the secret is not base64, with or without the prefix whsec_: illegal base64 data at input byte 4; at routes.r.bindings.b.webhook.secrets[0]",
		"b.yaml:4:114: the secret has 7 bytes; a secret is the base64 of 24 to 64 bytes, as `openssl rand -base64 32` makes it; at routes.r.bindings.b.webhook.secrets[1]"}},
	{name: "no secret", text: edit("path: /r", `path: /r, auth: { webhook: { secrets: ["${EMPTY}"] } }`), want: []string{
		"b.yaml:4:72: every secret is empty; at routes.r.source.http.auth.webhook.secrets; give at least one secret"}},
	{name: "empty secret", text: edit("path: /r", `path: /r, auth: { bearer: "" }`), want: []string{
		"b.yaml:4:60: the token is empty; at routes.r.source.http.auth.bearer; give one that is not"}},
	{name: "from outside", text: edit("stdout: {}", `file: { path: "${NONE}/${file:none}" }, rate: "${HUNTER}", filter: "${EMPTY}", concurrency: "${", on_full: "${a-b}", on_failure: "${file:}"`), want: []string{
		"b.yaml:4:79: the value needs the environment variable NONE, which is not set; at routes.r.bindings.b.file.path",
		`b.yaml:4:111: "${HUNTER}" is not a rate; at routes.r.bindings.b.rate; write a number per second, minute or hour, like 20/s, 100/m or 1000/h`,
		`b.yaml:4:132: "${EMPTY}" is empty; at routes.r.bindings.b.filter; an expression like payload.temp > 90.0`,
		"b.yaml:4:157: the value has ${ without a closing }; write $${ for the characters themselves; at routes.r.bindings.b.concurrency",
		"b.yaml:4:172: the value has a ${...} that is neither ${NAME}, ${NAME:-default} nor ${file:PATH}; write $${ for the characters themselves; at routes.r.bindings.b.on_full",
		"b.yaml:4:194: the value has ${file:} without a path; at routes.r.bindings.b.on_failure"}},
	{name: "files from outside", text: edit("stdout: {}", `webhook: { url: "${file:none}", secrets: ["${file:.}"] }`), want: []string{
		"b.yaml:4:81: the value needs the file testdata/none: no such file or directory; at routes.r.bindings.b.webhook.url",
		"b.yaml:4:107: the value needs the file testdata, which is not a regular file; at routes.r.bindings.b.webhook.secrets[0]"}},
	{name: "expressions", text: edit("stdout: {}", `stdout: {}, filter: "payload.x == subjet"`), want: []string{
		"b.yaml:4:99: undeclared reference to 'subjet' (did you mean 'subject'?); at routes.r.bindings.b.filter"}},
	{name: "expression in a block", want: []string{
		"b.yaml:9:9: undeclared reference to 'nothing'; at routes.r.ordering_key"},
		text: "version: 1\nstore: { memory: {} }\nroutes:\n  r:\n    source: { http: { path: /r } }\n    bindings: { b: { stdout: {} } }\n    ordering_key: |\n      subject +\n        nothing\n"},
	{name: "expression with escapes", text: edit("stdout: {}", `stdout: {}, filter: "payload.x == \"a\" && subjet == id"`), want: []string{
		"b.yaml:4:85: undeclared reference to 'subjet' (did you mean 'subject'?); at routes.r.bindings.b.filter"}},
	{name: "type of an expression", text: edit("source:", `ordering_key: payload_size, source:`), want: []string{
		"b.yaml:4:30: the expression gives int; an ordering key is a string; write string(...) around the expression to make it one; at routes.r.ordering_key"}},
	{name: "two routes on a path", text: edit("routes: {", "routes: { q: { source: { http: { path: /r } }, bindings: { b: { stdout: {} } } },"), want: []string{
		"b.yaml:4:112: route q has the path /r too; at routes.r.source.http.path; give each route a path of its own"}},
	{name: "two bindings on a file", text: edit("b: { stdout: {} }", "b: { file: { path: x/../y.jsonl } }, c: { file: { path: ./y.jsonl } }"), want: []string{
		`b.yaml:4:116: "./y.jsonl" is the file of routes.r.bindings.b.file.path too; at routes.r.bindings.c.file.path; give each a file of its own`}},
	{name: "the database as a destination", text: strings.Replace(edit("memory: {}", "sqlite: { path: data/o.db }"), "stdout: {}", "file: { path: data/o.db }", 1), want: []string{
		`b.yaml:4:79: "data/o.db" is the file of store.sqlite.path too; at routes.r.bindings.b.file.path; give each a file of its own`}},
	{name: "parked and in use", text: edit("version: 1", "version: 1\nparked: [r, r/b, r/c, a/b/c]"), schema: true, want: []string{
		`b.yaml:3:10: "r" is parked and in use; at parked[0]; take it out of parked, or remove it from routes`,
		`b.yaml:3:13: "r/b" is parked and in use; at parked[1]; take it out of parked, or remove it from routes`,
		`b.yaml:3:23: "a/b/c" is not a route or route/binding; at parked[3]; write the name of a route, like orders, or of a binding, like orders/crm`}},
	{name: "names but for their case", text: edit("b: { stdout: {} }", "b: { stdout: {} }, B: { stdout: {} }"), want: []string{
		`b.yaml:4:79: "B" is "b" again; at routes.r.bindings; names differ in more than upper and lower case`}},
	{name: "short lease", text: edit("version: 1", "version: 1\nlease_term: 99ms"), want: []string{
		"b.yaml:3:13: 99ms is below 100ms; at lease_term; take seconds"}},
	{name: "numbers that readers differ on", text: strings.NewReplacer("{ memory: {} }", "{ sqlite: { path: x, max_dead_letters: 017 } }",
		"path: /r", "path: /r, max_body: 0512", "stdout: {}", "stdout: {}, concurrency: +5, max_outbox_depth: 0x1F").Replace(small), want: []string{
		`b.yaml:3:47: expected an integer, found "017"; at store.sqlite.max_dead_letters; write decimal digits`,
		`b.yaml:4:54: "0512" is not a size; at routes.r.source.http.max_body; write bytes, like 65536, 256KiB or 1MiB`,
		`b.yaml:4:106: expected an integer, found "+5"; at routes.r.bindings.b.concurrency; write decimal digits`,
		`b.yaml:4:128: expected an integer, found "0x1F"; at routes.r.bindings.b.max_outbox_depth; write decimal digits`}},
	{name: "number too large", text: edit("stdout: {}", "stdout: {}, concurrency: 99999999999999999999"), schema: true, want: []string{
		"b.yaml:4:90: expected an integer, found a number that is no plain integer; at routes.r.bindings.b.concurrency; write it in decimal digits, without quotes"}},
	{name: "body that no store takes", text: edit("path: /r", "path: /r, max_body: 1GiB"), want: []string{
		"b.yaml:4:54: a message can have no more than 16777216 bytes; at routes.r.source.http.max_body; write 16MiB or less"}},
	{name: "token that no request can carry", text: edit("path: /r", `path: /r, auth: { bearer: ["${LINE}", " t"] }`), want: []string{
		"b.yaml:4:61: the token has a character that no token can have; at routes.r.source.http.auth.bearer[0]; a token is visible ASCII, as `openssl rand -hex 32` makes it; look for a stray space or line end",
		"b.yaml:4:72: the token has a character that no token can have; at routes.r.source.http.auth.bearer[1]; a token is visible ASCII, as `openssl rand -hex 32` makes it; look for a stray space or line end"}},
	{name: "paths that are hardly meant", text: strings.NewReplacer("{ memory: {} }", "{ sqlite: { path: ':memory:' } }",
		"stdout: {}", `file: { path: ~/x }`, "bindings: {", `bindings: { c: { file: { path: $HOME/x } }, d: { file: { path: "x\0y" } }, e: { file: { path: "${LINE}" } }, `).Replace(small), want: []string{
		"b.yaml:3:26: the path is written as SQLite has it, and would be taken for a file of that name; at store.sqlite.path; write a path, like data/outbox.db; or store: { memory: {} }",
		"b.yaml:4:79: the path begins with $, and nothing is put in there; at routes.r.bindings.c.file.path; write ${NAME}, with braces",
		"b.yaml:4:111: the path has a control character; at routes.r.bindings.d.file.path",
		"b.yaml:4:142: the path has a control character; at routes.r.bindings.e.file.path",
		"b.yaml:4:177: the path begins with ~, which only a shell understands; at routes.r.bindings.b.file.path; write it out, or begin it with ${HOME}"}},
	{name: "signatures outlive the retention", text: strings.NewReplacer("memory: {}", "memory: { retention: 5m }",
		"path: /r", `path: /r, auth: { webhook: { secrets: ["${SECRET}"] } }`).Replace(small), want: []string{
		"b.yaml:3:31: route r takes signed requests, which are good for up to 10m, and would take them again after 5m; at store.memory.retention; write 10m or more"}},
	{name: "partition of a key that is not signed", text: strings.NewReplacer(
		"path: /r", `path: /r, auth: { webhook: { secrets: ["${SECRET}"] } }`, "source:", "partitions: 4, source:").Replace(small), want: []string{
		"b.yaml:4:28: requests to route r are signed, but not the ordering key that they have as a header: sent again with another key, one would be a new message in another partition; at routes.r.partitions; set ordering_key to something in the payload"}},
	{name: "expression with something put in", text: edit("stdout: {}", `stdout: {}, filter: "${HUNTER} == 1"`), want: []string{
		`b.yaml:4:85: "${HUNTER} == 1" does not compile; at routes.r.bindings.b.filter; check what is put in; its problems are not shown, for they would show that`}},
	{name: "URLs", text: edit("b: { stdout: {} }", `a: { webhook: { url: "http://:80/" } }, b: { webhook: { url: "http://h:99999/" } }, c: { webhook: { url: "http://h:0/" } }`), want: []string{
		"b.yaml:4:81: the value is not an http or https URL; at routes.r.bindings.a.webhook.url; write a URL like https://example.com/hook",
		"b.yaml:4:121: the value has a port that is not from 1 to 65535; at routes.r.bindings.b.webhook.url; write a URL like https://example.com/hook",
		"b.yaml:4:165: the value has a port that is not from 1 to 65535; at routes.r.bindings.c.webhook.url; write a URL like https://example.com/hook"}},
	{name: "expressions without end", text: edit("b: { stdout: {} }", `b: &b { stdout: {}, filter: "`+strings.Repeat("true || ", 400)+`true" }`+manyAliases()), want: []string{
		"b.yaml:4:88: the file has more than 262144 bytes of expressions, its aliases counted out; at routes.r.bindings.n80.filter; use fewer aliases"}},
	{name: "tag", text: edit("version: 1", "version: 1\ngrace: !hunter2 x"), want: []string{
		"b.yaml:3:8: expected a duration, found a value with a tag of its own; at grace; write numbers with units, like 20s, 1h30m or 7d"}},
}

// manyAliases returns further bindings, all the same.
func manyAliases() string {
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, ", n%d: *b", i)
	}
	return b.String()
}

// edit returns the small file with one change.
func edit(from, to string) string { return strings.Replace(small, from, to, 1) }

func TestBadFiles(t *testing.T) {
	for _, tt := range bad {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse(t, tt.text)
			var e *config.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want *config.Error", err)
			}
			if want := strings.Join(tt.want, "\n"); err.Error() != want {
				t.Errorf("got\n%s\nwant\n%s", err, want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret is seen in %s", err)
			}
		})
	}
}
