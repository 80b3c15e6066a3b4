package config

// AWS is a connection.
type AWS struct {
	Region string `config:"region" example:"eu-central-1" doc:"The AWS Region; that of the environment when absent."`
}

// SQSSource takes messages off a queue.
type SQSSource struct {
	Connection ConnectionName `config:"connection,required" doc:"The connection, by its name."`
}

// SQSBinding sends messages to a queue.
type SQSBinding struct {
	Connection ConnectionName `config:"connection,required" doc:"The connection, by its name."`
}

// SNSBinding publishes messages to a topic.
type SNSBinding struct {
	Connection ConnectionName `config:"connection,required" doc:"The connection, by its name."`
}

func (s *SQSSource) describe() string { return "sqs by " + string(s.Connection) }

func (b *SQSBinding) describe() string { return "sqs by " + string(b.Connection) }

func (b *SNSBinding) describe() string { return "sns by " + string(b.Connection) }
