// Package config reads the configuration file: one YAML document, checked as a
// whole, with every problem reported by line and column.
//
// The types of this package are the one description of the file. Their tags
// drive the decoder, the JSON Schema ([Schema]) and the reference page
// ([Markdown]), so that the three can't disagree:
//
//	config   the field's name, then "required" if it is
//	doc      what it is for, in a sentence
//	default  what an absent field means, as it would stand in the file
//	example  a value for the reference page
//	one      fields with the same word are alternatives: exactly one is given
//	enum     the values allowed
//	min, max bounds of an integer
//	single   a list of one may be written as its entry alone
//	least    how many entries a list or map has at least
//	keys     what the keys of a map are: "name" or "header"
package config

// Config is the file.
type Config struct {
	Version       int                   `config:"version,required" min:"1" max:"1" doc:"The version of this format: 1."`
	Store         Store                 `config:"store,required" doc:"Where the outbox is kept."`
	HTTP          HTTP                  `config:"http" doc:"The HTTP server that routes with an http source share. It listens only if there is such a route."`
	Connections   map[string]Connection `config:"connections" keys:"name" doc:"Brokers that sources and destinations share, by name."`
	Telemetry     *Telemetry            `config:"telemetry" doc:"Where metrics and traces are sent to. Metrics can be scraped at /metrics of the admin listener without it."`
	Admin         *Admin                `config:"admin" doc:"The listener of the admin API, health, metrics and the web console; none when absent."`
	Routes        map[string]Route      `config:"routes,required" least:"1" keys:"name" doc:"The routes, by name. A name is part of the identity of stored messages: renaming a route with messages waiting is removing it."`
	Parked        []RouteOrBinding      `config:"parked" doc:"Routes and bindings that are gone from this file and whose stored messages may wait. Without this, the bridge refuses to start rather than forget them."`
	Repartitioned []RouteOrBinding      `config:"repartitioned" doc:"Routes and bindings whose number of partitions was changed, and for which it will do that what was delivered before the change is not recognised as a duplicate afterwards. Take them out again after the store's retention."`
	Log           Log                   `config:"log" doc:"What is logged, to standard error."`
	LeaseTerm     Duration              `config:"lease_term" default:"5s" doc:"How long the partitions of a process that died stay with it at most."`
	Grace         Duration              `config:"grace" default:"10s" doc:"How long a shutdown waits for requests in flight, and then for deliveries in flight."`

	// Warnings are what is allowed and still deserves a second look.
	Warnings []Problem `config:"-"`

	// file and at say where values stand, for [Config.Wrong].
	file string
	at   map[string]position
	// shown says how values may be shown, for [Config.Show].
	shown map[string]string
	// texts says what scalars were, for [Config.Same].
	texts map[string]scalarText
}

// Store says where the outbox is kept.
type Store struct {
	SQLite   *SQLite   `config:"sqlite" one:"kind of store" doc:"A SQLite file. Several processes on one machine may share it."`
	DynamoDB *DynamoDB `config:"dynamodb" one:"kind of store" doc:"A DynamoDB table, which processes on many machines share. The credentials are those of the environment: variables, shared files, or the machine's role."`
	Memory   *Memory   `config:"memory" one:"kind of store" doc:"Memory: everything is lost when the process ends. For tests and throwaway work."`
}

// SQLite is a database file.
type SQLite struct {
	Path      string   `config:"path,required" example:"data/outbox.db" doc:"The database file, relative to the working directory. It is created, with its directory, if it is not there. A file for the leases is put beside it."`
	Retention Duration `config:"retention" default:"24h" doc:"How long the identity of a message that has ended is remembered: within this time a repeated message is known as a duplicate."`

	DeadRetention  Duration `config:"dead_retention" default:"30d" doc:"How long dead letters are kept for a person to see. Older ones are discarded."`
	MaxDeadLetters int      `config:"max_dead_letters" min:"1" default:"100000" doc:"How many dead letters each partition of a destination may have. When they are full, what fails next halts its key instead."`
}

// DynamoDB is a table.
type DynamoDB struct {
	Table     string `config:"table" default:"gobridge" doc:"The table's name. gobridge table ensure makes it."`
	Region    string `config:"region" example:"eu-central-1" doc:"The AWS Region; that of the environment when absent."`
	Endpoint  *URL   `config:"endpoint" doc:"Another address than AWS's own, for an emulator or a private endpoint."`
	PinRegion string `config:"pin_region" example:"eu-central-1" doc:"For a table with replicas in other Regions, which is refused otherwise: the one Region in which every process uses it."`

	Retention      Duration `config:"retention" default:"24h" doc:"How long the identity of a message that has ended is remembered: within this time a repeated message is known as a duplicate."`
	DeadRetention  Duration `config:"dead_retention" default:"30d" doc:"How long dead letters are kept for a person to see. Older ones are discarded."`
	MaxDeadLetters int      `config:"max_dead_letters" min:"1" default:"100000" doc:"How many dead letters each partition of a destination may have. When they are full, what fails next halts its key instead."`
}

// Memory has no settings.
type Memory struct {
	Retention Duration `config:"retention" default:"24h" doc:"How long the identity of a message that has ended is remembered: within this time a repeated message is known as a duplicate."`
}

// HTTP is the server.
type HTTP struct {
	Listen Address `config:"listen" default:"127.0.0.1:8080" doc:"Host and port to listen on. Port 0 takes a free one, which is logged."`
	TLS    *TLS    `config:"tls" doc:"Serve HTTPS; plain HTTP when absent."`
}

// TLS is a server's certificate.
type TLS struct {
	Cert string `config:"cert,required" example:"tls/cert.pem" doc:"The certificate chain, a PEM file, relative to the working directory."`
	Key  string `config:"key,required" example:"tls/key.pem" doc:"The private key, a PEM file, relative to the working directory."`
}

// Route takes messages of one source to its bindings.
type Route struct {
	Source      Source             `config:"source,required" doc:"Where messages come from."`
	OrderingKey *KeyExpr           `config:"ordering_key" example:"payload.customer_id" doc:"An expression for the ordering key. Messages with the same key arrive in order. When absent, the key is the one that the source gives, if any. A message on which it fails is rejected."`
	ExpireAfter Duration           `config:"expire_after" example:"6h" doc:"How long after its acceptance a message is still worth delivering, unless it says so itself. When absent, messages do not expire."`
	OnReject    string             `config:"on_reject" enum:"dead_letter,discard" default:"dead_letter" doc:"What becomes of a message of a broker that cannot be taken, because it is malformed or too large, an expression fails on it, or a destination can never carry it: dead_letter makes it a dead letter of every destination, as it came, discard logs and forgets it. Over HTTP the client gets an error instead."`
	OnExpire    string             `config:"on_expire" enum:"drop,dead_letter" default:"drop" doc:"What becomes of expired messages: drop ends them as expired, dead_letter moves them to the dead letters."`
	Partitions  int                `config:"partitions" min:"1" max:"256" default:"1" doc:"Over how many partitions each destination is spread by ordering key, so that as many processes can deliver to it at a time. The same key is always in the same one. It can be changed only when nothing is stored any more and all processes are stopped; the bridge refuses to start otherwise."`
	OnFailure   string             `config:"on_failure" enum:"dead_letter,discard,halt_key" default:"dead_letter" doc:"What becomes of a message that a destination refuses for good, or whose attempts are exhausted: dead_letter moves it to the dead letters and its key goes on without it, discard ends it and its key goes on, halt_key keeps it and holds its key until a person decides."`
	Bindings    map[string]Binding `config:"bindings,required" least:"1" keys:"name" doc:"The destinations, by name. Each gets every message that its filter takes, independently of the others."`
}

// Source is where messages come from.
type Source struct {
	HTTP  *HTTPSource  `config:"http" one:"source" doc:"Messages are posted to a path of the HTTP server."`
	Kafka *KafkaSource `config:"kafka" one:"source" doc:"Messages are consumed from topics of Kafka."`
	NATS  *NATSSource  `config:"nats" one:"source" doc:"Messages are consumed from a stream of NATS JetStream."`
	SQS   *SQSSource   `config:"sqs" one:"source" doc:"Messages are taken off a queue of SQS."`
	MQTT  *MQTTSource  `config:"mqtt" one:"source" doc:"Messages of topics of an MQTT broker."`
	AMQP  *AMQPSource  `config:"amqp" one:"source" doc:"Messages are consumed from a queue of RabbitMQ."`
}

// HTTPSource accepts POST requests.
type HTTPSource struct {
	Path    Path         `config:"path,required" example:"/orders" doc:"The path, compared whole. Each route has its own."`
	Auth    *Auth        `config:"auth" doc:"Who may post; anyone when absent."`
	Headers []HeaderName `config:"headers" example:"[x-tenant]" doc:"Request headers that go with the message, beside the content type, the ordering key and the trace context."`
	MaxBody Size         `config:"max_body" default:"1MiB" doc:"The largest body, of a message or of a batch; larger ones get 413."`

	MaxBatch int `config:"max_batch" min:"1" max:"10000" default:"1000" doc:"How many events a batch of CloudEvents (application/cloudevents-batch+json) may have; more get 413. A batch is stored in one call."`
}

// Auth is who may post.
type Auth struct {
	Bearer  []Secret     `config:"bearer" one:"way to authenticate" least:"1" single:"true" example:"${file:secrets/orders}" doc:"The token that requests carry as Authorization: Bearer, or a list of tokens, any of which will do. Empty ones are left out, so that a second can come and go."`
	Webhook *WebhookAuth `config:"webhook" one:"way to authenticate" doc:"Requests are signed as Standard Webhooks has it."`
}

// WebhookAuth checks signatures.
type WebhookAuth struct {
	Secrets []Secret `config:"secrets,required" least:"1" doc:"The secrets, any of which may have signed: base64, with or without whsec_ before it. Empty ones are left out, so that a second can come and go."`
}

// Binding is one destination of a route.
type Binding struct {
	Webhook *Webhook      `config:"webhook" one:"destination" doc:"POST each message to a URL."`
	Kafka   *KafkaBinding `config:"kafka" one:"destination" doc:"Produce to a topic of Kafka."`
	NATS    *NATSBinding  `config:"nats" one:"destination" doc:"Publish to a subject of NATS."`
	SQS     *SQSBinding   `config:"sqs" one:"destination" doc:"Send to a queue of SQS."`
	SNS     *SNSBinding   `config:"sns" one:"destination" doc:"Publish to a topic of SNS."`
	MQTT    *MQTTBinding  `config:"mqtt" one:"destination" doc:"Publish to a topic of an MQTT broker."`
	AMQP    *AMQPBinding  `config:"amqp" one:"destination" doc:"Publish to an exchange of RabbitMQ."`
	File    *File         `config:"file" one:"destination" doc:"Append each message as a line of JSON to a file."`
	Stdout  *Stdout       `config:"stdout" one:"destination" doc:"Write each message as a line of JSON to standard output."`

	Filter         *FilterExpr `config:"filter" example:"payload.temp > 90.0" doc:"An expression that says whether this destination gets a message; all when absent. A message on which it fails is rejected for the whole route."`
	Rate           Rate        `config:"rate" example:"20/s" doc:"How many messages are sent at most, per s, m or h, over all partitions and processes; no bound when absent."`
	MaxOutboxDepth int         `config:"max_outbox_depth" min:"1" example:"100000" doc:"How many messages may wait for this destination, those that are being sent included; no bound but the disk when absent."`
	OnFull         string      `config:"on_full" enum:"reject,dead_letter" default:"reject" doc:"What happens when max_outbox_depth is reached: reject refuses new messages for the whole route until there is room, dead_letter puts this destination's copy into the dead letters. New messages are then accepted beyond max_outbox_depth until the dead letters are full too (max_dead_letters, for each partition); after that they are refused, for nothing is dropped."`
	Retry          Retry       `config:"retry" doc:"How a message that failed is tried again."`
	OnFailure      string      `config:"on_failure" enum:"dead_letter,discard,halt_key" doc:"As the route's on_failure, which holds when this is absent."`
	UnhealthyAfter Duration    `config:"unhealthy_after" default:"15m" doc:"How long the oldest message may wait before the delivery to this destination counts as unhealthy, for the admin API and the alerts."`
	Concurrency    int         `config:"concurrency" min:"1" max:"1024" default:"16" doc:"How many sends of a partition are in flight at most. Messages of one key are always sent one after the other."`
}

// Webhook is a URL to post to.
type Webhook struct {
	URL     URL               `config:"url,required" example:"https://crm.example.com/hook" doc:"The address. Redirects are not followed."`
	Secrets []Secret          `config:"secrets" doc:"Secrets to sign with, as Standard Webhooks has it: base64, with or without whsec_ before it. With several, there is a signature by each. Empty ones are left out. Not signed when there is none."`
	Headers map[string]Secret `config:"headers" keys:"header" doc:"Headers to send with every request. Their values are kept secret."`
	Timeout Duration          `config:"timeout" default:"30s" doc:"How long one request may take."`
	Format  string            `config:"format" enum:"plain,cloudevents,cloudevents_structured" default:"plain" doc:"How messages go out. plain: the payload is the body. cloudevents: each is a CloudEvent in binary mode, with its attributes as ce- headers. cloudevents_structured: each is a CloudEvent in JSON. A message that came as a CloudEvent keeps its attributes in any of them."`
}

// File is a file of JSON lines.
type File struct {
	Path string `config:"path,required" example:"data/delivered.jsonl" doc:"The file, relative to the working directory. It is created, with its directory, if it is not there. No two destinations share one."`
}

// Stdout has no settings.
type Stdout struct{}

// Retry is how a message that failed is tried again.
type Retry struct {
	Attempts int     `config:"attempts" min:"1" max:"1000000" default:"10" doc:"How many sends may fail for the message's own reasons before on_failure applies. A destination that is down as a whole spends none."`
	Backoff  Backoff `config:"backoff" default:"1s..5m" doc:"The wait before the second attempt, doubled with each further one, and its upper bound. A random part of up to half is taken off."`
}

// Log is what is logged.
type Log struct {
	Level  string `config:"level" enum:"debug,info,warn,error" default:"info" doc:"The least level that is logged."`
	Format string `config:"format" enum:"text,json" default:"text" doc:"How lines are written."`
}
