package main

import (
	"log/slog"
	"time"

	"gobridge"
	"gobridge/config"
	"gobridge/internal/awsclient"
	"gobridge/messaging"
	"gobridge/transport/sns"
	"gobridge/transport/sqs"
)

// awsBroker is a connection.
type awsBroker struct {
	sqs       *sqs.Connection
	sns       *sns.Connection
	closeIdle func()
}

func openAWS(c *config.AWS, log *slog.Logger) (broker, error) {
	options := awsclient.Options{Region: c.Region, Profile: c.Profile, TLS: clientTLS(c.TLS)}
	if c.Endpoint != nil {
		options.Endpoint = c.Endpoint.Reveal()
	}
	if c.Keys != nil {
		options.AccessKey, options.SecretKey = c.Keys.AccessKey.Again, c.Keys.SecretKey.Again
		if c.Keys.SessionToken != nil {
			options.SessionToken = c.Keys.SessionToken.Again
		}
	}
	settings, closeIdle, err := awsclient.Load(options)
	if err != nil {
		return nil, err
	}
	b := awsBroker{closeIdle: closeIdle}
	if b.sqs, err = sqs.New(settings, sqs.Options{Logger: log}); err != nil {
		return nil, err
	}
	if b.sns, err = sns.New(settings); err != nil {
		return nil, err
	}
	return b, nil
}

func (b awsBroker) Close() error {
	b.closeIdle()
	return nil
}

func (b awsBroker) receiver(_ string, source config.Source) (gobridge.Receiver, error) {
	s := source.SQS
	return b.sqs.Receiver(sqs.ReceiverOptions{
		Queue:         s.Queue,
		Receivers:     s.Receivers,
		Visibility:    time.Duration(s.VisibilityTimeout),
		Prefetch:      s.Prefetch,
		KeepEnvelopes: s.SNSEnvelopes == "keep",
	})
}

func (b awsBroker) sender(_, _ string, binding config.Binding) (gobridge.Sender, error) {
	if binding.SNS != nil {
		c := binding.SNS
		return b.sns.Sender(sns.SenderOptions{
			Topic: c.Topic, TopicFrom: evalOf(c.TopicFrom), MaxSize: int(c.MaxMessageSize),
			Format: c.Format, Attributes: evals(c.Attributes), Fair: bool(c.Fair),
		})
	}
	c := binding.SQS
	return b.sqs.Sender(sqs.SenderOptions{
		Queue: c.Queue, QueueFrom: evalOf(c.QueueFrom),
		Format: c.Format, Attributes: evals(c.Attributes), Fair: bool(c.Fair),
	})
}

// evalOf returns the function of an expression, nil for none.
func evalOf(e *config.TextExpr) func(*messaging.Envelope) (string, error) {
	if e == nil {
		return nil
	}
	return e.Eval
}

// evals returns the functions of expressions, by name.
func evals(all map[string]config.TextExpr) map[string]func(*messaging.Envelope) (string, error) {
	out := make(map[string]func(*messaging.Envelope) (string, error), len(all))
	for name, e := range all {
		out[name] = e.Eval
	}
	return out
}
