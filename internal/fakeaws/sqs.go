package fakeaws

import (
	"context"
	"crypto/md5" //nolint:gosec // it is the API's
	"encoding/hex"
	"encoding/json"
	"path"
	"strconv"
	"strings"
	"time"
)

// request has the fields of all actions.
type request struct {
	QueueURL                string `json:"QueueUrl"`
	QueueName               string
	QueueOwnerAWSAccountID  string `json:"QueueOwnerAWSAccountId"`
	MaxNumberOfMessages     *int
	WaitTimeSeconds         int
	VisibilityTimeout       *int
	ReceiveRequestAttemptID string `json:"ReceiveRequestAttemptId"`
	Entries                 []entry
}

// entry has the fields of the entries of all batches.
type entry struct {
	ID                     string `json:"Id"`
	MessageBody            string
	MessageGroupID         string `json:"MessageGroupId"`
	MessageDeduplicationID string `json:"MessageDeduplicationId"`
	DelaySeconds           int
	MessageAttributes      map[string]attribute
	ReceiptHandle          string
	VisibilityTimeout      *int
}

type result struct {
	ID               string `json:"Id"`
	MessageID        string `json:"MessageId,omitempty"`
	MD5OfMessageBody string `json:",omitempty"`
	Code             string `json:",omitempty"`
	Message          string `json:",omitempty"`
	SenderFault      *bool  `json:",omitempty"`
}

type results struct {
	Successful, Failed []result
}

// sqs does an action of SQS.
func (s *Server) sqs(ctx context.Context, action string, body []byte) (any, Fault, *failure) {
	var r request
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, Fault{}, refuse("SerializationException", "%v", err)
	}
	var entries []Entry
	var ids []string
	for _, e := range r.Entries {
		entries = append(entries, Entry{ID: e.ID, Body: e.MessageBody + e.ReceiptHandle})
		ids = append(ids, e.ID)
	}
	fault, fail := s.begin(ctx, action, entries)
	if fail != nil {
		return nil, fault, fail
	}
	if action == "ReceiveMessage" {
		out, fail := s.receiveMessage(ctx, r)
		return out, fault, fail
	}
	defer s.wake()
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.QueueName
	if action != "GetQueueUrl" {
		name = path.Base(r.QueueURL)
	}
	q := s.queues[name]
	if q == nil || r.QueueOwnerAWSAccountID != "" && r.QueueOwnerAWSAccountID != Account {
		return nil, fault, refuse("AWS.SimpleQueueService.NonExistentQueue", "the specified queue does not exist")
	}
	switch action {
	case "GetQueueUrl":
		return map[string]string{"QueueUrl": s.queueURL(name)}, fault, nil
	case "GetQueueAttributes":
		return map[string]any{"Attributes": q.attributes()}, fault, nil
	}
	bytes := 0
	for i := range r.Entries {
		m := r.Entries[i].message()
		bytes += m.size()
	}
	if fail := checkBatch(ids, bytes, maxQueueBytes); fail != nil {
		return nil, fault, fail
	}
	var out results
	for i, e := range r.Entries {
		done := result{ID: e.ID}
		fail := fault.entry(entries[i])
		if fail == nil {
			fail = s.do(action, q, e, &done)
		}
		if fail == nil {
			out.Successful = append(out.Successful, done)
		} else {
			blame := fail.status < 500
			out.Failed = append(out.Failed, result{ID: e.ID, Code: fail.code, Message: fail.message, SenderFault: &blame})
		}
	}
	return out, fault, nil
}

// entry returns how an entry is to fail.
func (f *Fault) entry(e Entry) *failure {
	if f.Entries == nil {
		return nil
	}
	code, sender := f.Entries(e)
	switch {
	case code == "":
		return nil
	case sender:
		return refuse(code, "as the test has it")
	}
	return &failure{500, code, "as the test has it"}
}

func (e *entry) message() message {
	return message{body: e.MessageBody, attributes: e.MessageAttributes, group: e.MessageGroupID, dedupe: e.MessageDeduplicationID}
}

// do does one entry of a batch.
func (s *Server) do(action string, q *queue, e entry, done *result) *failure {
	switch action {
	case "SendMessageBatch":
		m := e.message()
		if fail := m.check(q.fifo, maxAttributes, maxQueueBytes); fail != nil {
			return fail
		}
		if q.fifo && e.DelaySeconds != 0 {
			return refuse("InvalidParameterValue", "DelaySeconds in a FIFO queue")
		}
		done.MessageID = s.enqueue(q, m).id
		done.MD5OfMessageBody = digest(m.body)
		return nil
	case "DeleteMessageBatch":
		return q.remove(e.ReceiptHandle, s.now())
	case "ChangeMessageVisibilityBatch":
		if e.VisibilityTimeout == nil {
			return refuse("MissingParameter", "no VisibilityTimeout")
		}
		return q.change(e.ReceiptHandle, time.Duration(*e.VisibilityTimeout)*time.Second, s.now())
	}
	return refuse("InvalidAction", "%s", action)
}

func digest(body string) string {
	sum := md5.Sum([]byte(body)) //nolint:gosec // it is the API's
	return hex.EncodeToString(sum[:])
}

func (q *queue) attributes() map[string]string {
	out := map[string]string{
		"QueueArn":                    "arn:aws:sqs:" + Region + ":" + Account + ":" + q.name,
		"ApproximateNumberOfMessages": strconv.Itoa(q.left()),
		"VisibilityTimeout":           strconv.Itoa(int(q.visibility.Seconds())),
	}
	if q.fifo {
		out["FifoQueue"] = "true"
	}
	if q.dead != "" {
		out["RedrivePolicy"] = `{"deadLetterTargetArn":"arn:aws:sqs:` + Region + ":" + Account + ":" + q.dead +
			`","maxReceiveCount":` + strconv.Itoa(q.maxReceive) + `}`
	}
	return out
}

// receiveMessage waits for messages.
func (s *Server) receiveMessage(ctx context.Context, r request) (any, *failure) {
	limit := 1
	if r.MaxNumberOfMessages != nil {
		limit = *r.MaxNumberOfMessages
	}
	if limit < 1 || limit > 10 || r.WaitTimeSeconds < 0 || r.WaitTimeSeconds > 20 {
		return nil, refuse("InvalidParameterValue", "MaxNumberOfMessages is 1 to 10, WaitTimeSeconds 0 to 20")
	}
	timer := time.NewTimer(time.Duration(r.WaitTimeSeconds) * time.Second)
	defer timer.Stop()
	for over := false; ; {
		s.mu.Lock()
		q := s.queues[path.Base(r.QueueURL)]
		if q == nil {
			s.mu.Unlock()
			return nil, refuse("AWS.SimpleQueueService.NonExistentQueue", "the specified queue does not exist")
		}
		visibility := q.visibility
		if r.VisibilityTimeout != nil {
			visibility = time.Duration(*r.VisibilityTimeout) * time.Second
		}
		got := s.receive(q, limit, visibility, r.ReceiveRequestAttemptID)
		out := make([]map[string]any, len(got))
		for i, m := range got {
			out[i] = m.show(q.fifo)
		}
		changed := s.changed
		s.mu.Unlock()
		if len(got) > 0 || over {
			return map[string]any{"Messages": out}, nil
		}
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond): // something may have become visible
		case <-timer.C:
			over = true
		case <-ctx.Done():
			return nil, refuse("InternalError", "the server ends")
		}
	}
}

func (m *stored) show(fifo bool) map[string]any {
	system := map[string]string{
		"ApproximateReceiveCount": strconv.Itoa(m.received),
		"SentTimestamp":           strconv.FormatInt(m.at.UnixMilli(), 10),
	}
	if m.group != "" {
		system["MessageGroupId"] = m.group
	}
	if fifo {
		system["MessageDeduplicationId"] = m.dedupe
		system["SequenceNumber"] = strings.Repeat("0", 8) + strconv.Itoa(m.sequence)
	}
	out := map[string]any{
		"MessageId": m.id, "ReceiptHandle": m.handle, "Body": m.body, "MD5OfBody": digest(m.body), "Attributes": system,
	}
	if len(m.attributes) > 0 {
		out["MessageAttributes"] = m.attributes
	}
	return out
}
