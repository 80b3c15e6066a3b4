package config

// Kafka is a connection.
type Kafka struct {
	TLS *ClientTLS `config:"tls" doc:"Encrypt; {} for the system's roots."`
}

// KafkaSource takes messages.
type KafkaSource struct {
	Connection ConnectionName `config:"connection,required" doc:"The connection, by its name."`
}

// KafkaBinding sends messages.
type KafkaBinding struct {
	Connection ConnectionName `config:"connection,required" doc:"The connection, by its name."`
}

func (s *KafkaSource) describe() string { return "kafka by " + string(s.Connection) }

func (b *KafkaBinding) describe() string { return "kafka by " + string(b.Connection) }
