package config

// MQTT is a connection.
type MQTT struct {
	TLS *ClientTLS `config:"tls" doc:"Encrypt; {} for the system's roots."`
}

// MQTTSource takes messages.
type MQTTSource struct {
	Connection ConnectionName `config:"connection,required" doc:"The connection, by its name."`
}

// MQTTBinding sends messages.
type MQTTBinding struct {
	Connection ConnectionName `config:"connection,required" doc:"The connection, by its name."`
}

func (s *MQTTSource) describe() string { return "mqtt by " + string(s.Connection) }

func (b *MQTTBinding) describe() string { return "mqtt by " + string(b.Connection) }
