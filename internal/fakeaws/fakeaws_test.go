package fakeaws_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"go.uber.org/goleak"

	"gobridge/internal/awsclient"
	"gobridge/internal/fakeaws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) (*fakeaws.Server, *sqs.Client) {
	t.Helper()
	s := fakeaws.Start()
	t.Cleanup(s.Close)
	text := func() (string, error) { return "x", nil }
	config, closeIdle, err := awsclient.Load(awsclient.Options{Region: fakeaws.Region, Endpoint: s.URL(), AccessKey: text, SecretKey: text})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeIdle)
	return s, sqs.NewFromConfig(config)
}

func attribute(kind, value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: &kind, StringValue: &value}
}

// What AWS refuses is refused, the rest of the batch aside.
func TestRefusals(t *testing.T) {
	s, c := start(t)
	many := map[string]types.MessageAttributeValue{}
	for i := range 11 {
		many[fmt.Sprint("a", i)] = attribute("String", "v")
	}
	one := func(name string, value types.MessageAttributeValue) map[string]types.MessageAttributeValue {
		return map[string]types.MessageAttributeValue{name: value}
	}
	text := aws.String
	for _, tt := range []struct {
		name, queue, want string
		entry             types.SendMessageBatchRequestEntry
	}{
		{"an empty body", "q", "MissingParameter", types.SendMessageBatchRequestEntry{MessageBody: text("")}},
		{"a control character", "q", "InvalidMessageContents", types.SendMessageBatchRequestEntry{MessageBody: text("a\x01")}},
		{"a noncharacter", "q", "InvalidMessageContents", types.SendMessageBatchRequestEntry{MessageBody: text("\uFFFE")}},
		{"eleven attributes", "q", "InvalidParameterValue", types.SendMessageBatchRequestEntry{MessageAttributes: many}},
		{"an empty attribute", "q", "InvalidParameterValue", types.SendMessageBatchRequestEntry{MessageAttributes: one("a", attribute("String", ""))}},
		{"a reserved name", "q", "InvalidParameterValue", types.SendMessageBatchRequestEntry{MessageAttributes: one("aWs.a", attribute("String", "v"))}},
		{"two periods", "q", "InvalidParameterValue", types.SendMessageBatchRequestEntry{MessageAttributes: one("a..b", attribute("String", "v"))}},
		{"another type", "q", "InvalidParameterValue", types.SendMessageBatchRequestEntry{MessageAttributes: one("a", attribute("Text", "v"))}},
		{"no group", "q.fifo", "MissingParameter", types.SendMessageBatchRequestEntry{MessageDeduplicationId: text("d")}},
		{"no deduplication ID", "q.fifo", "InvalidParameterValue", types.SendMessageBatchRequestEntry{MessageGroupId: text("g")}},
		{"a group with a space", "q.fifo", "InvalidParameterValue", types.SendMessageBatchRequestEntry{MessageGroupId: text("g g"), MessageDeduplicationId: text("d")}},
		{"a long group", "q", "InvalidParameterValue", types.SendMessageBatchRequestEntry{MessageGroupId: text(strings.Repeat("g", 129))}},
		{"a delay in a FIFO queue", "q.fifo", "InvalidParameterValue", types.SendMessageBatchRequestEntry{MessageGroupId: text("g"), MessageDeduplicationId: text("d"), DelaySeconds: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url := s.CreateQueue(tt.queue)
			tt.entry.Id = text("bad")
			if tt.entry.MessageBody == nil {
				tt.entry.MessageBody = text("body")
			}
			good := types.SendMessageBatchRequestEntry{Id: text("good"), MessageBody: text("ok"), MessageGroupId: text("g")}
			if strings.HasSuffix(tt.queue, ".fifo") {
				good.MessageDeduplicationId = text("good")
			}
			out, err := c.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: []types.SendMessageBatchRequestEntry{tt.entry, good}})
			if err != nil || len(out.Failed) != 1 || *out.Failed[0].Code != tt.want || !out.Failed[0].SenderFault || len(s.Sent(tt.queue)) != 1 {
				t.Errorf("answer %+v, %v; want one refused with %s", out, err, tt.want)
			}
		})
	}
	url := s.CreateQueue("q")
	batch := func(ids ...string) (entries []types.SendMessageBatchRequestEntry) {
		for _, id := range ids {
			entries = append(entries, types.SendMessageBatchRequestEntry{Id: &id, MessageBody: text("b")})
		}
		return entries
	}
	large := batch("a", "b")
	large[0].MessageBody, large[1].MessageBody = text(strings.Repeat("x", 600_000)), text(strings.Repeat("x", 600_000))
	for want, entries := range map[string][]types.SendMessageBatchRequestEntry{
		"EmptyBatchRequest":            {},
		"TooManyEntriesInBatchRequest": batch(strings.Split("abcdefghijk", "")...),
		"BatchEntryIdsNotDistinct":     batch("a", "a"),
		"InvalidBatchEntryId":          batch("a b"),
		"BatchRequestTooLong":          large,
	} {
		_, err := c.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
		if err == nil || awsclient.CodeOf(err) != strings.ToLower(want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// receive returns the bodies and handles of one poll that does not wait.
func receive(t *testing.T, c *sqs.Client, url string) (bodies, handles []string) {
	t.Helper()
	out, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10, VisibilityTimeout: 60})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range out.Messages {
		bodies, handles = append(bodies, *m.Body), append(handles, *m.ReceiptHandle)
	}
	return bodies, handles
}

func TestGroupsAreLockedAndHandlesGrowOld(t *testing.T) {
	s, c := start(t)
	url := s.CreateQueue("q.fifo")
	s.Put("q.fifo", "g", "1", "one")
	_, old := receive(t, c, url)
	s.Put("q.fifo", "g", "2", "two")
	s.Put("q.fifo", "g", "2", "again")
	s.Put("q.fifo", "h", "3", "three")
	if bodies, _ := receive(t, c, url); fmt.Sprint(bodies) != "[three]" {
		t.Errorf("while its first message is in flight, the group gives out %v", bodies)
	}
	s.Advance(2 * time.Minute)
	bodies, handles := receive(t, c, url)
	if fmt.Sprint(bodies) != "[one two three]" {
		t.Errorf("after the visibility timeout there is %v", bodies)
	}
	for _, handle := range []string{old[0], handles[0]} {
		if _, err := c.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{
			QueueUrl: &url, Entries: []types.DeleteMessageBatchRequestEntry{{Id: aws.String("0"), ReceiptHandle: &handle}},
		}); err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int{true: 3, false: 2}[handle == old[0]]; s.Left("q.fifo") != want {
			t.Errorf("%d messages are left, want %d", s.Left("q.fifo"), want)
		}
	}
	s.Advance(5 * time.Minute)
	s.Put("q.fifo", "g", "2", "later")
	if n := s.Left("q.fifo"); n != 3 {
		t.Errorf("%d messages are left, want a deduplication ID to be good again", n)
	}
}
