// Package amqp consumes queues of RabbitMQ, and publishes to its exchanges, over
// AMQP 0-9-1.
//
// # A message that comes
//
//	payload        the body, content type the property content-type
//	ID             gobridge-dedupe-id or gobridge-id, else source and id of a CloudEvent,
//	               else the property message-id (unless [ByNothing]), else none
//	subject        gobridge-subject, else the routing key
//	ordering key   gobridge-ordering-key, or what the route says
//	created        gobridge-created-at, else the property timestamp; one outside 1970 to
//	               2261 (most often milliseconds) is the header amqp-timestamp instead
//	headers        the headers table, and the properties: content-encoding under its
//	               name, amqp-correlation-id, amqp-reply-to, amqp-type, amqp-app-id,
//	               amqp-user-id, amqp-priority, and amqp-exchange, where it was published
//
// Values of the headers table are text as they are; numbers, booleans and times (RFC
// 3339) are written as text, tables and arrays as JSON, nothing as the empty text.
// The properties expiration and delivery-mode, which are for the queue, are left
// out. x-delivery-count of quorum queues, or the flag redelivered of others, becomes
// [messaging.HeaderDeliveryCount].
//
// A message-id is the producer's. Two producers that number their messages alike
// give the same IDs to different messages: content tells those apart, app-id and
// user-id included. Producers that do so and have neither need [ByNothing].
//
// Order is that of the queue for one consumer. What is not acknowledged goes back to
// the front of the queue when the consumer ends, in whichever way: in a classic queue
// to its place, in a quorum queue behind what came back before. So a consumer has to
// get all that came back at once, which it does unless the prefetch was made smaller.
// A stream keeps no place for a consumer, and is refused.
//
// # A message that goes
//
// The body is the payload, delivery mode persistent, message-id what a consumer's
// deduplication should go by ([gobridge.Delivery.DedupeID]; "sha256:" and its digest
// in hexadecimal, if it has more than 255 bytes or is not UTF-8), timestamp and
// expiration those of the message. Headers that are named above become properties
// again; the others, and gobridge's own (package mapping), stand in the headers table
// as text. CC and BCC, by which RabbitMQ would route, and what can't stand by itself
// go in gobridge-headers.
//
// Every message is published with the flag mandatory on a channel that confirms,
// many at a time, and a send has a channel for itself. The answers:
//
//	confirmed                      delivered
//	refused (basic.nack)           transient: a queue is full
//	returned: no queue gets it     unavailable; transient if each message has a routing
//	                               key or exchange of its own
//	channel or connection closed   see outcome
//	connection blocked by alarm    the broker asks to be left alone
//
// A send whose time is over closes its channel, so that nothing of it becomes
// visible later. If the server does not answer that, nothing more is published for
// this binding until it does, or until its connection is dead.
package amqp
