// Package mill connects gobridge and Watermill (github.com/ThreeDotsLabs/watermill):
// a [Publisher] into the outbox, and a [Sender] over any publisher of Watermill.
//
// # Into the outbox
//
// A [Publisher] is a message.Publisher. When Publish returns nil, all messages of
// the call are durable in the outbox, and the bridge delivers them afterwards, at
// least once and in order per ordering key. It takes them through a function
// ([PublishFunc]): a route of a bridge by [Into], or the transaction in which a service
// writes its own rows, so that row and message are committed together.
//
//	Watermill                       gobridge
//	topic                           subject
//	topic, a space, UUID            message ID
//	payload                         payload
//	metadata content-type           content type
//	metadata gobridge-ordering-key  ordering key, unless Options.OrderingKey says it
//	metadata gobridge-created-at, gobridge-not-before, gobridge-expires-at (RFC 3339)
//	                                the times of these names
//	all other metadata              headers
//
// A message with the UUID and the topic of one that the outbox has is a duplicate,
// and published once; if it says something else, the call fails with
// [gobridge.ErrIdentityReused]. Without a UUID every message is another one. A topic
// has no space, or Publish refuses it. What [Sender] says in metadata of a delivery
// is dropped, so that a handler may publish on what it got; any other name that
// begins with gobridge- is refused, for a misspelt ordering key would cost the
// message its order.
//
// # Out of the outbox
//
// A [Sender] publishes each delivery to a publisher of Watermill, one message in a
// call:
//
//	topic      the subject, or what Options.Topic says
//	UUID       the UUID that came in, if the topic is the subject, or else the message's
//	           ID, for two topics may have the same UUID; another one after each
//	           redrive, which the publisher's deduplication must not swallow
//	payload    the payload
//	metadata   the message's headers and content type, and beside them gobridge-id,
//	           -dedupe-id, -subject, -ordering-key, -created-at, -expires-at, -route,
//	           -binding, -partition, -seq, -token-version, -attempt and -redrives, as
//	           far as they say something; headers whose names gobridge has for itself
//	           are in gobridge-headers, as name=value&name=value, percent-encoded
//	context    that of the send, with its deadline
//
// The message is delivered when the publisher returns nil: what that is worth is
// the publisher's word, so configure it to wait for its broker. An error is
// transient unless Options.Classify says more. A publisher that looks at no
// context is waited for, or an old message could become visible after its
// successor: give it timeouts of its own.
package mill
