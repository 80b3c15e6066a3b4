package fakeaws

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// topic is a topic.
type topic struct {
	arn           string
	fifo          bool
	maxBytes      int
	seen          map[string]sighting
	sent          []Sent
	subscriptions []subscription
}

type subscription struct {
	queue string
	raw   bool
}

// CreateTopic makes a topic, FIFO if its name ends in .fifo, that takes messages of
// up to 256 KiB.
func (s *Server) CreateTopic(name string) (arn string) {
	arn = "arn:aws:sns:" + Region + ":" + Account + ":" + name
	s.locked(func() {
		s.topics[arn] = &topic{arn: arn, fifo: strings.HasSuffix(name, ".fifo"), maxBytes: 256 << 10, seen: map[string]sighting{}}
	})
	return arn
}

// DeleteTopic removes a topic.
func (s *Server) DeleteTopic(arn string) { s.locked(func() { delete(s.topics, arn) }) }

// Subscribe makes a topic deliver to a queue, raw or in an envelope.
func (s *Server) Subscribe(arn, queue string, raw bool) {
	s.locked(func() { s.topics[arn].subscriptions = append(s.topics[arn].subscriptions, subscription{queue, raw}) })
}

// Published returns what a topic has taken, in order, without duplicates.
func (s *Server) Published(arn string) (out []Sent) {
	s.locked(func() { out = slices.Clone(s.topics[arn].sent) })
	return out
}

// snsResult is what an action of SNS gives.
type snsResult struct {
	XMLName    xml.Name
	Successful []snsEntry  `xml:"PublishBatchResult>Successful>member,omitempty"`
	Failed     []snsFailed `xml:"PublishBatchResult>Failed>member,omitempty"`
	Attributes []snsPair   `xml:"GetTopicAttributesResult>Attributes>entry,omitempty"`
}

type snsEntry struct {
	ID        string `xml:"Id"`
	MessageID string `xml:"MessageId"`
}

type snsFailed struct {
	ID          string `xml:"Id"`
	Code        string
	Message     string
	SenderFault bool
}

type snsPair struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

// sns does an action of SNS.
func (s *Server) sns(ctx context.Context, action string, form url.Values) (any, Fault, *failure) {
	var entries []Entry
	var ids []string
	var messages []message
	bytes := 0
	for n := 1; ; n++ {
		at := "PublishBatchRequestEntries.member." + strconv.Itoa(n) + "."
		if !form.Has(at + "Id") {
			break
		}
		m := snsMessage(form, at)
		bytes += m.size()
		messages = append(messages, m)
		ids = append(ids, form.Get(at+"Id"))
		entries = append(entries, Entry{ID: form.Get(at + "Id"), Body: m.body})
	}
	fault, fail := s.begin(ctx, action, entries)
	if fail != nil {
		return nil, fault, fail
	}
	defer s.wake()
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[form.Get("TopicArn")]
	if t == nil {
		return nil, fault, &failure{http.StatusNotFound, "NotFound", "Topic does not exist"}
	}
	var out snsResult
	switch action {
	case "GetTopicAttributes":
		out.Attributes = []snsPair{
			{"TopicArn", t.arn}, {"SubscriptionsConfirmed", strconv.Itoa(len(t.subscriptions))},
			{"FifoTopic", strconv.FormatBool(t.fifo)}, {"MaximumMessageSize", strconv.Itoa(t.maxBytes)},
		}
		return out, fault, nil
	case "PublishBatch":
	default:
		return nil, fault, refuse("InvalidAction", "%s", action)
	}
	if fail := checkBatch(ids, bytes, t.maxBytes); fail != nil {
		fail.code = strings.TrimPrefix(fail.code, "AWS.SimpleQueueService.")
		return nil, fault, fail
	}
	for i, m := range messages {
		fail := fault.entry(entries[i])
		if fail == nil {
			fail = m.checkPublished(t)
		}
		if fail != nil {
			out.Failed = append(out.Failed, snsFailed{ids[i], fail.code, fail.message, fail.status < 500})
			continue
		}
		out.Successful = append(out.Successful, snsEntry{ids[i], s.publish(t, m)})
	}
	return out, fault, nil
}

// snsMessage reads an entry.
func snsMessage(form url.Values, at string) message {
	m := message{
		body: form.Get(at + "Message"), subject: form.Get(at + "Subject"),
		group: form.Get(at + "MessageGroupId"), dedupe: form.Get(at + "MessageDeduplicationId"), attributes: map[string]attribute{},
	}
	for n := 1; ; n++ {
		one := at + "MessageAttributes.entry." + strconv.Itoa(n) + "."
		if !form.Has(one + "Name") {
			return m
		}
		m.attributes[form.Get(one+"Name")] = attribute{
			form.Get(one + "Value.DataType"), form.Get(one + "Value.StringValue"), form.Get(one + "Value.BinaryValue"),
		}
	}
}

func (m *message) checkPublished(t *topic) *failure {
	const many = 1000 // SNS has no bound of its own; raw delivery to SQS has
	if fail := m.check(t.fifo, many, t.maxBytes); fail != nil {
		return fail
	}
	if m.subject != "" && (utf8.RuneCountInString(m.subject) >= 100 || strings.ContainsFunc(m.subject, unicode.IsControl)) {
		return refuse("InvalidParameter", "Invalid parameter: Subject")
	}
	return nil
}

// publish takes a message and delivers it.
func (s *Server) publish(t *topic, m message) (id string) {
	now := s.now()
	if seen, ok := t.seen[m.dedupe]; ok && m.dedupe != "" && now.Sub(seen.at) < dedupeTime {
		return seen.id
	}
	s.serial++
	id = fmt.Sprintf("10000000-0000-4000-8000-%012d", s.serial)
	if m.dedupe != "" {
		t.seen[m.dedupe] = sighting{now, id}
	}
	t.sent = append(t.sent, m.sent(id))
	for _, sub := range t.subscriptions {
		q := s.queues[sub.queue]
		if q == nil || sub.raw && len(m.attributes) > maxAttributes {
			continue // as a client side error
		}
		one := m
		one.subject = ""
		if !q.fifo {
			one.dedupe = ""
		}
		if !sub.raw {
			one.body, one.attributes = t.envelope(id, m, now), nil
		}
		s.enqueue(q, one)
	}
	return id
}

// envelope writes a message as SNS does where raw delivery is not on.
func (t *topic) envelope(id string, m message, now time.Time) string {
	type value struct{ Type, Value string }
	attributes := map[string]value{}
	for name, a := range m.attributes {
		text := a.StringValue
		if a.BinaryValue != "" {
			text = base64.StdEncoding.EncodeToString([]byte(a.value()))
		}
		attributes[name] = value{a.DataType, text}
	}
	body := map[string]any{
		"Type": "Notification", "MessageId": id, "TopicArn": t.arn, "Message": m.body,
		"Timestamp": now.UTC().Format("2006-01-02T15:04:05.000Z"), "UnsubscribeURL": "https://sns." + Region + ".amazonaws.com/?Action=Unsubscribe",
	}
	if m.subject != "" {
		body["Subject"] = m.subject
	}
	if len(attributes) > 0 {
		body["MessageAttributes"] = attributes
	}
	encoded, _ := json.Marshal(body) // strings only
	return string(encoded)
}

func answerXML(w http.ResponseWriter, action string, out any, fail *failure) {
	w.Header().Set("Content-Type", "text/xml")
	if fail == nil {
		r, _ := out.(snsResult)
		r.XMLName = xml.Name{Local: action + "Response"}
		_ = xml.NewEncoder(w).Encode(r)
		return
	}
	kind := "Sender"
	if fail.status >= 500 {
		kind = "Receiver"
	}
	w.WriteHeader(fail.status)
	_ = xml.NewEncoder(w).Encode(struct {
		XMLName xml.Name `xml:"ErrorResponse"`
		Type    string   `xml:"Error>Type"`
		Code    string   `xml:"Error>Code"`
		Message string   `xml:"Error>Message"`
	}{Type: kind, Code: fail.code, Message: fail.message})
}
