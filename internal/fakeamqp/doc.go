// Package fakeamqp is a broker that speaks AMQP 0-9-1 as RabbitMQ does, in memory,
// for hermetic tests. It is strict about what it reads, and has faults to switch on.
//
// It knows direct, fanout and topic exchanges, classic and quorum queues (which are
// the same but for x-delivery-count), x-max-length with reject-publish, the single
// active consumer, publisher confirms, mandatory messages, heartbeats, and blocked
// connections. What is requeued goes back to its place. There is one virtual host,
// "/". It knows no transactions, no priorities, no expiry and no dead-lettering.
//
// Its own tests run against a real server too, if GOBRIDGE_AMQP_URL names one.
package fakeamqp
