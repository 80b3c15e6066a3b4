package config

// AMQP is a connection.
type AMQP struct {
	TLS *ClientTLS `config:"tls" doc:"Encrypt; {} for the system's roots."`
}

// AMQPSource takes messages.
type AMQPSource struct {
	Connection ConnectionName `config:"connection,required" doc:"The connection, by its name."`
}

// AMQPBinding sends messages.
type AMQPBinding struct {
	Connection ConnectionName `config:"connection,required" doc:"The connection, by its name."`
}

func (s *AMQPSource) describe() string { return "amqp by " + string(s.Connection) }

func (b *AMQPBinding) describe() string { return "amqp by " + string(b.Connection) }
