// Package fakeaws is SQS and SNS in memory, for tests. It is as strict as the API
// references are (queues, batches, characters, attributes, groups, deduplication,
// visibility), in what a hostile reading of them allows: a standard queue gives
// messages out in no order, a FIFO queue locks a group while one of its messages is
// in flight, an old receipt handle deletes nothing.
//
// It speaks to the SDK over HTTP: the JSON protocol of SQS with the actions
// GetQueueUrl, GetQueueAttributes, SendMessageBatch, ReceiveMessage,
// DeleteMessageBatch and ChangeMessageVisibilityBatch, and the query protocol of SNS
// with PublishBatch and GetTopicAttributes. Signatures are not checked, the access
// key can be ([Server.Allow]). [Server.OnCall] brings in faults.
package fakeaws
