// Package awsclient builds the settings of AWS clients, and says what their errors
// mean for a delivery. The transports of SQS and SNS share it.
package awsclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"gobridge/internal/clienttls"
)

const (
	// idleConnections is how many idle connections are kept: the SDK's ten are
	// fewer than the calls that a busy bridge makes side by side, and each of the
	// others would begin with a TLS handshake.
	idleConnections = 64
	// attempts is how often the SDK makes a call: twice, so that a connection which
	// the other side has just closed costs nothing. The engine does the rest.
	attempts   = 2
	maxBackoff = time.Second
	// connectTime bounds connecting and, again, the TLS handshake.
	connectTime = 5 * time.Second
	// maxResponse bounds a response, in bytes. Ten messages of 1 MiB, with every
	// character escaped, are 60 MiB.
	maxResponse = 64 << 20
	// keysTime is for how long keys are used before they are read again: a change is
	// taken up at once, and a busy bridge reads no file for every call.
	keysTime = time.Second
	// loadTime bounds the reading of the environment and of shared files.
	loadTime = 10 * time.Second
)

// Options say which AWS, and as whom. The zero value takes everything from the
// environment: variables, shared files, or the role of the machine.
type Options struct {
	// Region is needed here, in the environment, or in the shared files.
	Region string
	// Endpoint, unless empty, is an http or https URL that is called instead of
	// AWS's own addresses.
	Endpoint string
	// Profile, unless empty, is a profile of the shared files.
	Profile string
	// AccessKey, SecretKey and SessionToken, unless nil, give the keys to sign with.
	// They are read again every second that they are needed in. The first two come together; the third is
	// for temporary keys.
	AccessKey, SecretKey, SessionToken func() (string, error)
	// TLS, unless nil, is how connections are encrypted: for an endpoint whose
	// certificate the system does not trust, or which wants one.
	TLS *clienttls.Options
}

// CredentialsError says that there are no credentials to sign a request with.
type CredentialsError struct{ err error }

func (e *CredentialsError) Error() string { return "AWS credentials: " + e.err.Error() }

// Unwrap returns the cause.
func (e *CredentialsError) Unwrap() error { return e.err }

// Marked returns settings whose failures to get credentials are known as such: as a
// [*CredentialsError], which [Answer] understands.
func Marked(c aws.Config) aws.Config {
	inner := c.Credentials
	c.Credentials = aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		if inner == nil {
			return aws.Credentials{}, &CredentialsError{errors.New("there are none")}
		}
		got, err := inner.Retrieve(ctx)
		if err != nil {
			return aws.Credentials{}, &CredentialsError{err}
		}
		return got, nil
	})
	return c
}

// Load makes the settings of clients. It reads the environment and connects to
// nothing. Close idle connections with the function that comes with them.
func Load(o Options) (aws.Config, func(), error) {
	if err := o.check(); err != nil {
		return aws.Config{}, nil, err
	}
	options := []func(*awsconfig.LoadOptions) error{
		awsconfig.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(o.transport)),
		awsconfig.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(s *retry.StandardOptions) {
				s.MaxAttempts, s.MaxBackoff = attempts, maxBackoff
			})
		}),
	}
	if o.Region != "" {
		options = append(options, awsconfig.WithRegion(o.Region))
	}
	if o.Profile != "" {
		options = append(options, awsconfig.WithSharedConfigProfile(o.Profile))
	}
	if o.AccessKey != nil {
		options = append(options, awsconfig.WithCredentialsProvider(aws.NewCredentialsCache(aws.CredentialsProviderFunc(o.keys))))
	}
	ctx, cancel := context.WithTimeout(context.Background(), loadTime)
	defer cancel()
	c, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return aws.Config{}, nil, fmt.Errorf("AWS settings: %w", err)
	}
	if c.Region == "" {
		return aws.Config{}, nil, errors.New("AWS settings: no Region; set region or AWS_REGION")
	}
	if o.Endpoint != "" {
		c.BaseEndpoint = &o.Endpoint
	}
	// The environment may have roots of its own (AWS_CA_BUNDLE), which are in it now.
	buildable, ok := c.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		return aws.Config{}, nil, fmt.Errorf("AWS settings: the HTTP client became a %T", c.HTTPClient)
	}
	transport := buildable.GetTransport()
	c.HTTPClient = &bounded{client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}}
	return c, transport.CloseIdleConnections, nil
}

func (o Options) check() error {
	if (o.AccessKey == nil) != (o.SecretKey == nil) {
		return errors.New("AWS settings: an access key needs its secret key, and a secret key its access key")
	}
	if o.SessionToken != nil && o.AccessKey == nil {
		return errors.New("AWS settings: a session token is of no use without its keys")
	}
	if o.AccessKey != nil && o.Profile != "" {
		return errors.New("AWS settings: keys and a profile are given; keep one")
	}
	if o.Endpoint != "" {
		u, err := url.Parse(o.Endpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return errors.New("AWS settings: the endpoint is no http or https URL with a host")
		}
	}
	if o.TLS != nil {
		if _, err := o.TLS.Load(); err != nil {
			return fmt.Errorf("AWS settings: %w", err)
		}
	}
	return nil
}

// keys reads the keys. They end so that they are read again: what was changed in a
// file is taken up without a restart.
func (o Options) keys(context.Context) (aws.Credentials, error) {
	out := aws.Credentials{Source: "gobridge", CanExpire: true, Expires: time.Now().Add(keysTime)}
	for _, part := range []struct {
		to   *string
		read func() (string, error)
		what string
	}{
		{&out.AccessKeyID, o.AccessKey, "access key"},
		{&out.SecretAccessKey, o.SecretKey, "secret key"},
		{&out.SessionToken, o.SessionToken, "session token"},
	} {
		if part.read == nil {
			continue
		}
		text, err := part.read()
		if err != nil {
			return aws.Credentials{}, fmt.Errorf("%s: %w", part.what, err)
		}
		if text == "" && part.to != &out.SessionToken {
			return aws.Credentials{}, fmt.Errorf("the %s is empty", part.what)
		}
		*part.to = text
	}
	return out, nil
}

// transport sets up how connections are made.
func (o Options) transport(t *http.Transport) {
	t.MaxIdleConns, t.MaxIdleConnsPerHost = idleConnections, idleConnections
	t.TLSHandshakeTimeout = connectTime
	dial := &net.Dialer{Timeout: connectTime}
	t.DialContext = dial.DialContext
	if o.TLS == nil {
		return
	}
	if c, err := o.TLS.Load(); err == nil { // it was checked
		t.TLSClientConfig = c // for what is reached through a proxy
	}
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := o.TLS.Load()
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		ctx, cancel := context.WithTimeout(ctx, connectTime)
		defer cancel()
		return (&tls.Dialer{NetDialer: dial, Config: c}).DialContext(ctx, network, address)
	}
}

// bounded is a client whose responses have an end.
type bounded struct{ client *http.Client }

// Do makes a request.
func (b *bounded) Do(r *http.Request) (*http.Response, error) {
	resp, err := b.client.Do(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxResponse), resp.Body}
	}
	return resp, err
}
