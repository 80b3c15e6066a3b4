package admin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/operate"
)

// ClientOptions configure a [Client]. URL and Token are required.
type ClientOptions struct {
	// URL is the admin listener's: http or https, absolute.
	URL   string
	Token string
	// TLS configures https; nil takes the system's roots.
	TLS *tls.Config
}

// Client is a [Desk] at an admin listener elsewhere. It is safe for concurrent
// use.
type Client struct {
	base  *url.URL
	token string
	http  *http.Client
}

var _ Desk = (*Client)(nil)

// Errors of a client, beside those of the desk that it asks.
var (
	// ErrUnreachable: the admin listener could not be asked, or its answer broke off.
	ErrUnreachable = errors.New("the admin listener can't be reached")
	// ErrNotAllowed: the token's role does not suffice.
	ErrNotAllowed = errors.New("not allowed")
)

// maxAnswer bounds what is read of an answer that is no stream, in bytes.
const maxAnswer = 256 << 20

// NewClient returns a client, or says what is wrong with the options. It connects
// to nothing yet.
func NewClient(o ClientOptions) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil || u.Path != "" && u.Path != "/" {
		shown := "that" // it may have a password
		if err == nil {
			shown = strconv.Quote(u.Redacted())
		}
		return nil, fmt.Errorf("%s is no address of an admin listener, like https://bridge.example.com:9090", shown)
	}
	if o.Token == "" {
		return nil, errors.New("no token for the admin listener")
	}
	transport := &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		DialContext:     (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig: o.TLS, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true,
		ResponseHeaderTimeout: time.Minute, IdleConnTimeout: 30 * time.Second,
	}
	return &Client{base: u, token: o.Token, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close closes idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// do asks, and returns the answer if it is a success.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, contentType string, body io.Reader) (*http.Response, error) {
	u := *c.base
	u.Path = apiPrefix + path
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close()
	return nil, c.refusal(answer)
}

// refusal is the error of an answer that is no success.
func (c *Client) refusal(answer *http.Response) error {
	var p problem
	body, _ := io.ReadAll(io.LimitReader(answer.Body, maxBody))
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if media != "application/problem+json" || json.Unmarshal(body, &p) != nil || p.Status != answer.StatusCode {
		return fmt.Errorf("%w: %s answers %s, and not as an admin listener does", ErrUnreachable, c.base, answer.Status)
	}
	return p.remote()
}

// remote is the error that a problem is, so that it means here what it meant there.
func (p *problem) remote() error {
	out := &remoteError{text: p.Detail, report: p.Report}
	switch p.Status {
	case http.StatusBadRequest:
		if p.Field == "cursor" {
			out.is = gobridge.ErrInvalidCursor
		}
	case http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusMisdirectedRequest:
		out.is = ErrUnreachable
	case http.StatusForbidden:
		out.is = ErrNotAllowed
	case http.StatusNotFound:
		out.is = gobridge.ErrNotFound
	}
	return out
}

// remoteError says what the other side said, and is what it was there.
type remoteError struct {
	text   string
	is     error // nil for nothing in particular
	report json.RawMessage
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }

// get asks for something and reads it into out.
func (c *Client) get(ctx context.Context, path string, query url.Values, out any) error {
	answer, err := c.do(ctx, http.MethodGet, path, query, "", nil)
	if err != nil {
		return err
	}
	return readAnswer(answer, out)
}

func readAnswer(answer *http.Response, out any) error {
	defer answer.Body.Close()
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("%w: its answer breaks off or is not as expected: %w", ErrUnreachable, err)
	}
	return nil
}

// post sends a body and reads the answer into out.
func (c *Client) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	answer, err := c.do(ctx, http.MethodPost, path, nil, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	return readAnswer(answer, out)
}

// Status is [operate.Desk.Status].
func (c *Client) Status(ctx context.Context) (out operate.Status, err error) {
	err = c.get(ctx, "/status", nil, &out)
	return out, err
}

// Explain is [operate.Desk.Explain].
func (c *Client) Explain(ctx context.Context, q operate.Question) ([]operate.Answer, error) {
	query := url.Values{"q": {q.Text}}
	if q.OnlyKey {
		query.Set("kind", "key")
	} else if q.OnlyID {
		query.Set("kind", "id")
	}
	var out struct{ Answers []operate.Answer }
	err := c.get(ctx, "/explain", query, &out)
	return out.Answers, err
}

// Known is [operate.Desk.Known].
func (c *Client) Known(ctx context.Context, t operate.Target) error {
	var out struct{ Known bool }
	return c.get(ctx, "/known", url.Values{"target": {t.String()}}, &out)
}

// Removed is [operate.Desk.Removed]; false if it could not be asked.
func (c *Client) Removed(route, binding string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var out struct{ Removed bool }
	err := c.get(ctx, "/removed", url.Values{"route": {route}, "binding": {binding}}, &out)
	return err == nil && out.Removed
}

// Get is [operate.Desk.Get]. It fails with [ErrNotAllowed] if the token may not see
// the payload: without it, the record would be another message.
func (c *Client) Get(ctx context.Context, t operate.Target, id string) (gobridge.Record, error) {
	var out recordJSON
	if err := c.get(ctx, "/record", url.Values{"target": {t.String()}, "id": {id}}, &out); err != nil {
		return gobridge.Record{}, err
	}
	if out.Withheld {
		return gobridge.Record{}, &remoteError{text: "the token's role may not see payloads", is: ErrNotAllowed}
	}
	return out.record()
}

// Waiting is [operate.Desk.Waiting].
func (c *Client) Waiting(ctx context.Context, t operate.Target) (int64, error) {
	var out struct{ Waiting int64 }
	err := c.get(ctx, "/waiting", url.Values{"target": {t.String()}}, &out)
	return out.Waiting, err
}

// Holding is [operate.Desk.Holding].
func (c *Client) Holding(ctx context.Context, t operate.Target, key, id string) ([]gobridge.Control, error) {
	query := url.Values{"target": {t.String()}}
	if key != "" {
		query.Set("key", key)
	}
	if id != "" {
		query.Set("id", id)
	}
	var out struct{ Controls []controlJSON }
	if err := c.get(ctx, "/holding", query, &out); err != nil {
		return nil, err
	}
	var controls []gobridge.Control
	for i := range out.Controls {
		controls = append(controls, out.Controls[i].control())
	}
	return controls, nil
}

// Audit is [operate.Desk.Audit].
func (c *Client) Audit(ctx context.Context, limit int) ([]gobridge.AuditEntry, error) {
	var out struct{ Entries []auditJSON }
	if err := c.get(ctx, "/audit", url.Values{"limit": {strconv.Itoa(min(limit, gobridge.AuditLimit))}}, &out); err != nil {
		return nil, err
	}
	var entries []gobridge.AuditEntry
	for _, e := range out.Entries {
		entries = append(entries, gobridge.AuditEntry{
			At: e.At, Action: gobridge.AuditAction(e.Action), Scope: string(e.Scope), Count: e.Count, By: e.By, Reason: e.Reason,
		})
	}
	return entries, nil
}

func (c *Client) hold(ctx context.Context, path string, t operate.Target, key, id string, who operate.Who) error {
	var out doneJSON
	in := holdRequest{act{who.By, who.Reason}, t.String(), operate.Text(key), operate.Text(id)}
	return c.post(ctx, path, in, &out)
}

// Pause is [operate.Desk.Pause].
func (c *Client) Pause(ctx context.Context, t operate.Target, who operate.Who) error {
	return c.hold(ctx, "/pause", t, "", "", who)
}

// Halt is [operate.Desk.Halt].
func (c *Client) Halt(ctx context.Context, t operate.Target, key, id string, who operate.Who) error {
	return c.hold(ctx, "/halt", t, key, id, who)
}

// Resume is [operate.Desk.Resume].
func (c *Client) Resume(ctx context.Context, t operate.Target, key, id string, who operate.Who) error {
	return c.hold(ctx, "/resume", t, key, id, who)
}

// Retry is [operate.Desk.Retry].
func (c *Client) Retry(ctx context.Context, filter gobridge.Filter, who operate.Who) (int, error) {
	out, err := postLong[countJSON](ctx, c, "/retry", retryRequest{act{who.By, who.Reason}, toFilterJSON(filter)}, nil)
	return out.Count, err
}

// Do is [operate.Desk.Do].
func (c *Client) Do(ctx context.Context, job operate.Job, who operate.Who, progress func(int)) (operate.BulkReport, error) {
	in := jobRequest{act{who.By, who.Reason}, job.Kind, toFilterJSON(job.Filter), job.Max, job.Pace, job.DryRun}
	done := 0
	out, err := postLong[operate.BulkReport](ctx, c, "/jobs", in, func(n int) {
		if done = n; progress != nil {
			progress(n)
		}
	})
	if out.Kind == "" { // it broke off: this much is known
		out.Kind, out.Scope, out.DryRun, out.Count = job.Kind, job.Filter.Scope(), job.DryRun, done
	}
	return out, err
}

// postLong sends a body and follows the answer.
func postLong[T any](ctx context.Context, c *Client, path string, in any, progress func(int)) (out T, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return out, fmt.Errorf("admin: %w", err)
	}
	return doLong[T](ctx, c, path, nil, "application/json", bytes.NewReader(body), progress)
}

// doLong asks for something long, and reads the lines of its answer up to the report.
func doLong[T any](ctx context.Context, c *Client, path string, query url.Values, contentType string, body io.Reader, progress func(int)) (out T, err error) {
	answer, err := c.do(ctx, http.MethodPost, path, query, contentType, body)
	if err != nil {
		var refused *remoteError
		if errors.As(err, &refused) && refused.report != nil {
			err = errors.Join(err, json.Unmarshal(refused.report, &out))
		}
		return out, err
	}
	defer answer.Body.Close()
	for d := json.NewDecoder(answer.Body); ; {
		var one step[T]
		if err := d.Decode(&one); err != nil {
			if ctx.Err() != nil {
				return out, ctx.Err()
			}
			return out, fmt.Errorf("%w: the answer broke off before its end, and what was done until then stays: %w", ErrUnreachable, err)
		}
		if one.Progress != nil && progress != nil {
			progress(int(*one.Progress))
		}
		if one.Report == nil {
			continue
		}
		if one.Problem != nil {
			err = one.Problem.remote()
		}
		return *one.Report, err
	}
}

// Move is [operate.Desk.Move].
func (c *Client) Move(ctx context.Context, from, to operate.Target, who operate.Who) (bridge.MoveResult, error) {
	out, err := postLong[moveJSON](ctx, c, "/move", moveRequest{act{who.By, who.Reason}, from.String(), to.String()}, nil)
	return bridge.MoveResult{Moved: out.Moved, Expired: out.Expired, Left: gobridge.Stats{
		Pending: out.Left.Pending, Claimed: out.Left.Claimed, Dead: out.Left.Dead,
	}}, err
}

// EndRemoved is [operate.Desk.EndRemoved].
func (c *Client) EndRemoved(ctx context.Context, t operate.Target, who operate.Who) (int, error) {
	out, err := postLong[countJSON](ctx, c, "/end-removed", endRequest{act{who.By, who.Reason}, t.String()}, nil)
	return out.Count, err
}

// Dead is [operate.Desk.Dead].
func (c *Client) Dead(ctx context.Context, query gobridge.DeadQuery) (out operate.DeadPage, err error) {
	q := filterQuery(query.Filter)
	if query.Limit > 0 {
		q.Set("limit", strconv.Itoa(min(query.Limit, maxDeadPage)))
	}
	if query.Cursor != "" {
		q.Set("cursor", query.Cursor)
	}
	err = c.get(ctx, "/dead", q, &out)
	return out, err
}

// Export is [operate.Desk.Export]. What is to be skipped is left out here.
func (c *Client) Export(ctx context.Context, filter gobridge.Filter, w io.Writer, skip func(gobridge.Ref) bool, progress func(int)) (int, error) {
	answer, err := c.do(ctx, http.MethodGet, "/dead/export", filterQuery(filter), "", nil)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	in := bufio.NewReaderSize(answer.Body, 1<<16)
	n := 0
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			break
		}
		if err != nil {
			return n, fmt.Errorf("%w: the export broke off: %w", ErrUnreachable, err)
		}
		if skip != nil {
			r, err := operate.DecodeLetter(line)
			if err != nil {
				return n, fmt.Errorf("%w: what it sends is no export: %w", ErrUnreachable, err)
			}
			if skip(r.Ref()) {
				continue
			}
		}
		if _, err := w.Write(line); err != nil {
			return n, err
		}
		if n++; progress != nil && n%exportProgress == 0 {
			progress(n)
		}
	}
	if progress != nil {
		progress(n)
	}
	return n, nil
}

// exportProgress is after how many lines of an export progress is told.
const exportProgress = 200

// Import is [operate.Desk.Import].
func (c *Client) Import(ctx context.Context, r io.Reader, to operate.Target, who operate.Who, dryRun bool, progress func(int)) (operate.ImportReport, error) {
	q := url.Values{}
	for name, value := range map[string]string{"by": who.By, "reason": who.Reason} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if to != (operate.Target{}) {
		q.Set("target", to.String())
	}
	if dryRun {
		q.Set("dry_run", "true")
	}
	return doLong[operate.ImportReport](ctx, c, "/dead/import", q, "application/x-ndjson", r, progress)
}

// Reload asks for a reload and returns what changed, for people.
func (c *Client) Reload(ctx context.Context, who operate.Who) (string, error) {
	var out reloadJSON
	err := c.post(ctx, "/reload", act{who.By, who.Reason}, &out)
	return out.Changed, err
}
