package awsclient_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"go.uber.org/goleak"

	"gobridge"
	"gobridge/internal/awsclient"
	"gobridge/internal/clienttls"
	"gobridge/internal/fakeaws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// response is an error that came with a status and no code.
func response(status int) error {
	return &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}}, Err: errors.New("no code"),
	}
}

func code(code string) error {
	return fmt.Errorf("operation error: %w", &smithy.GenericAPIError{Code: code, Message: "why"})
}

func entry(code string, sender bool) error {
	return fmt.Errorf("queue q: %w", awsclient.Entry(&code, aws.String("why"), sender))
}

func TestAnswers(t *testing.T) {
	const (
		transient   = gobridge.OutcomeTransient
		permanent   = gobridge.OutcomePermanent
		unavailable = gobridge.OutcomeUnavailable
		slow        = gobridge.OutcomeUnavailable + 100
	)
	for _, tt := range []struct {
		err  error
		want gobridge.Outcome
	}{
		{nil, gobridge.OutcomeDelivered},
		{code("RequestThrottled"), slow},
		{code("ThrottlingException"), slow},
		{code("Throttled"), slow},
		{code("KMSThrottling"), slow},
		{code("KMS.ThrottlingException"), slow},
		{entry("KMS.AccessDeniedException", true), unavailable},
		{entry("KMS.DisabledException", true), unavailable},
		{entry("KmsSomethingNew", true), unavailable},
		{&types.KmsThrottled{}, slow},
		{&types.OverLimit{}, slow},
		{entry("RequestThrottled", true), slow},
		{response(429), slow},
		{&types.QueueDoesNotExist{}, unavailable},
		{&types.QueueDoesNotExist{ErrorCodeOverride: aws.String("AWS.SimpleQueueService.NonExistentQueue")}, unavailable},
		{code("NotFound"), unavailable},
		{code("AccessDenied"), unavailable},
		{code("AccessDeniedException"), unavailable},
		{code("AuthorizationError"), unavailable},
		{code("ExpiredToken"), unavailable},
		{code("ExpiredTokenException"), unavailable},
		{code("InvalidClientTokenId"), unavailable},
		{code("SignatureDoesNotMatch"), unavailable},
		{code("UnrecognizedClientException"), unavailable},
		{code("KMSDisabled"), unavailable},
		{&types.KmsAccessDenied{}, unavailable},
		{entry("KMS.NotFoundException", true), unavailable},
		{entry("KmsInvalidState", false), unavailable},
		{response(403), unavailable},
		{response(503), unavailable},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, unavailable},
		{&net.DNSError{}, unavailable},
		{x509.UnknownAuthorityError{}, transient},
		{&types.InvalidMessageContents{}, permanent},
		{code("AWS.SimpleQueueService.BatchRequestTooLong"), permanent},
		{code("InvalidParameter"), permanent},
		{code("ParameterValueInvalid"), permanent},
		{entry("WhateverIsNew", true), permanent},
		{entry("WhateverIsNew", false), transient},
		{entry("InternalError", true), transient},
		{code("WhateverIsNew"), transient},
		{code("InternalFailure"), transient},
		{response(500), transient},
		{response(0), transient},
		{context.DeadlineExceeded, transient},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, transient},
		{&net.OpError{Op: "dial", Err: context.Canceled}, transient},
	} {
		got, after := gobridge.Classify(awsclient.Answer(tt.err))
		want, wantAfter := tt.want, tt.want == slow
		if wantAfter {
			want = unavailable
		}
		if got != want || (after > 0) != wantAfter {
			t.Errorf("%v: outcome %v after %s, want %v", tt.err, got, after, tt.want)
		}
	}
}

func text(s string) func() (string, error) { return func() (string, error) { return s, nil } }

func load(t *testing.T, o awsclient.Options) aws.Config {
	t.Helper()
	c, closeIdle, err := awsclient.Load(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeIdle)
	return awsclient.Marked(c)
}

func TestWhatIsWrongWithOptions(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	for want, o := range map[string]awsclient.Options{
		"no Region":             {},
		"needs its secret key":  {Region: "r", AccessKey: text("a")},
		"without its keys":      {Region: "r", SessionToken: text("a")},
		"keep one":              {Region: "r", AccessKey: text("a"), SecretKey: text("s"), Profile: "p"},
		"no http or https URL":  {Region: "r", Endpoint: "localhost:4566"},
		"needs both cert and":   {Region: "r", TLS: &clienttls.Options{Cert: "x"}},
		"get shared config pro": {Region: "r", Profile: "nobody"},
	} {
		if _, _, err := awsclient.Load(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

// Keys that were changed are taken up without a restart, and never shown.
func TestKeysAreReadAgain(t *testing.T) {
	s := fakeaws.Start()
	t.Cleanup(s.Close)
	s.CreateQueue("q")
	s.Allow("NEW")
	var key atomic.Value
	key.Store("OLD")
	broken := errors.New("no such file")
	access := func() (string, error) {
		if key.Load() == "" {
			return "", broken
		}
		return key.Load().(string), nil
	}
	client := sqs.NewFromConfig(load(t, awsclient.Options{
		Region: fakeaws.Region, Endpoint: s.URL(), AccessKey: access, SecretKey: text("hush"),
	}))
	call := func() error {
		_, err := client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("q")})
		if err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("the error shows the secret: %v", err)
		}
		return awsclient.Answer(err)
	}
	until := func(what string, ok func(error) bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			err := call()
			if ok(err) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s has not happened, the last answer is %v", what, err)
			}
		}
	}
	if kind, _ := gobridge.Classify(call()); kind != gobridge.OutcomeUnavailable {
		t.Errorf("a wrong key is no matter of the destination: %v", kind)
	}
	key.Store("NEW")
	until("the use of the new key", func(err error) bool { return err == nil })
	key.Store("")
	until("an unreadable key", func(err error) bool {
		kind, _ := gobridge.Classify(err)
		return errors.Is(err, broken) && kind == gobridge.OutcomeUnavailable
	})
}

func TestNobodyThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + listener.Addr().String()
	_ = listener.Close()
	client := sqs.NewFromConfig(load(t, awsclient.Options{Region: "r", Endpoint: endpoint, AccessKey: text("a"), SecretKey: text("s")}))
	_, err = client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("q")})
	if kind, _ := gobridge.Classify(awsclient.Answer(err)); kind != gobridge.OutcomeUnavailable {
		t.Errorf("%v is outcome %v", err, kind)
	}
}
