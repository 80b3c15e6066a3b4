package config

// NATS is a connection.
type NATS struct {
	TLS *ClientTLS `config:"tls" doc:"Encrypt; {} for the system's roots."`
}

// NATSSource takes messages.
type NATSSource struct {
	Connection ConnectionName `config:"connection,required" doc:"The connection, by its name."`
}

// NATSBinding sends messages.
type NATSBinding struct {
	Connection ConnectionName `config:"connection,required" doc:"The connection, by its name."`
}

func (s *NATSSource) describe() string { return "nats by " + string(s.Connection) }

func (b *NATSBinding) describe() string { return "nats by " + string(b.Connection) }
