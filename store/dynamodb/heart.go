package dynamodb

import (
	"context"
	"errors"
	"strings"
	"time"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
)

// A heart is a row that counts the renewals of one handle: a beat renews all
// leases under it with one write. A lease names its heart, and base, what that
// had beaten when the lease came under it. The revision of a held lease is
//
//	the row's own revision + the heart's beats - base
//
// and that of a released one the row's own. A row's own revision goes up by whole
// epochs, so that no revision comes twice, whatever its hearts beat.
//
// Four rules make a beat as good as a renewal of each row:
//
//   - Whoever takes a held lease over stops its heart first, on condition that it
//     has not beaten since it was observed. A stopped heart never beats again.
//   - So a beat that succeeds says that nobody has taken any row under the heart.
//     One that fails says nothing: each row is then renewed by itself, under a new
//     heart, and those that have been taken over show.
//   - A row is changed only as it was last seen, so that no late request can put it
//     back under an old heart.
//   - A heart beats for nothing but what is to be renewed. When something else is
//     under it, or may be, a new heart takes the others over, and the old one is
//     left alone.
//
// The package protocol has a model of it.
type heart struct {
	id    string
	beats int64
	at    time.Time // of the last beat, by the holder's clock
	// stopped says that somebody has taken over a lease that was under it.
	stopped bool
}

const (
	// heartPrefix begins no partition's sort key: there '#' is escaped.
	heartPrefix = "#HEART#"
	// epoch is what a row's own revision goes up by: more than a heart ever beats.
	epoch = 1 << 32
	// heartLife is how long after its last beat a heart with nothing under it is
	// removed, by the clock of whoever does it. Removed too soon, it is as if stopped.
	heartLife = time.Hour
)

func heartKey(id string) item { return key(leasesPK, heartPrefix+id) }

// nextEpoch is the first revision of the epoch after one's.
func nextEpoch(revision int64) int64 { return (revision/epoch + 1) * epoch }

func parseHeart(it item) (heart, error) {
	p := parser{it: it}
	h := heart{id: strings.TrimPrefix(p.text(attrSK), heartPrefix), beats: p.num("beats"), at: p.time("renewed_at"), stopped: p.num("stopped") != 0}
	return h, p.err
}

// under makes a row say what its heart says.
func (r *lease) under(h *heart) {
	if r.Released || r.heart != h.id {
		return
	}
	r.beating, r.beats = !h.stopped, h.beats
	r.Revision = r.raw + max(0, h.beats-r.base)
	if h.beats > r.base {
		r.RenewedAt = h.at
	}
}

// ensureHeart returns the handle's heart, and makes it if there is none.
func (l *leases) ensureHeart(ctx context.Context, c call) (heart, error) {
	l.making.Lock()
	defer l.making.Unlock()
	l.mu.Lock()
	h := l.heart
	l.mu.Unlock()
	if h.id != "" {
		return h, nil
	}
	h = heart{id: newNonce(), at: clean(l.store.now())}
	row := heartKey(h.id)
	row["beats"], row["renewed_at"] = num(0), num(nanos(h.at))
	_, err := l.store.putItem(ctx, c, &ddb.PutItemInput{
		Item: row, ConditionExpression: ptr(absent), ExpressionAttributeNames: names(absent),
	})
	if _, made := failedCondition(err); err != nil && !made { // made by an attempt whose answer was lost
		return heart{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heart, l.covered = h, map[gobridge.Partition]*lease{}
	return h, nil
}

// beat renews everything under a heart. It reports false if the heart has been
// stopped, or is gone.
func (l *leases) beat(ctx context.Context, c call, id string) (heart, bool, error) {
	at := clean(l.store.now())
	update, beats := "SET #renewed_at = :now ADD #beats :one", "attribute_exists(#PK) AND attribute_not_exists(#stopped)"
	out, err := l.store.touchItem(ctx, c, &ddb.UpdateItemInput{
		Key: heartKey(id), UpdateExpression: &update, ConditionExpression: &beats,
		ExpressionAttributeNames: names(update, beats), ExpressionAttributeValues: item{
			":now": num(nanos(at)), ":one": num(1),
		},
		ReturnValues: types.ReturnValueAllNew,
	})
	if _, stopped := failedCondition(err); stopped {
		return heart{}, false, nil
	}
	if err != nil {
		return heart{}, true, err
	}
	h, err := parseHeart(out.Attributes)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heart.id == id && l.heart.beats < h.beats {
		l.heart = h
	}
	return h, true, err
}

// stop stops the heart of a lease that is to be taken over, unless it has beaten
// since it was read.
func (l *leases) stop(ctx context.Context, c call, old *lease) (bool, error) {
	update, still := "SET #stopped = :one", "#beats = :beats"
	_, err := l.store.updateItem(ctx, c, &ddb.UpdateItemInput{
		Key: heartKey(old.heart), UpdateExpression: &update, ConditionExpression: &still,
		ExpressionAttributeNames: names(update, still), ExpressionAttributeValues: item{":one": num(1), ":beats": num(old.beats)},
	})
	if _, beaten := failedCondition(err); beaten {
		return false, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(old.heart)
	return err == nil, err
}

// bury removes a heart that has stood still for long and has no lease under it. That
// it can't is no failure: somebody will.
func (l *leases) bury(ctx context.Context, c call, h *heart) {
	if l.store.now().Sub(h.at) < heartLife {
		return
	}
	same := "#beats = :beats"
	_, err := l.store.deleteItem(ctx, c, &ddb.DeleteItemInput{
		Key: heartKey(h.id), ConditionExpression: &same, ExpressionAttributeNames: names(same),
		ExpressionAttributeValues: item{":beats": num(h.beats)},
	})
	if _, beaten := failedCondition(err); err != nil && !beaten {
		l.store.log.DebugContext(ctx, "a row of a process that has gone cannot be removed", "error", err)
	}
}

// leave gives a heart up, under the lock: what is renewed next comes under a new one.
func (l *leases) leave(id string) {
	if l.heart.id == id {
		l.heart, l.covered = heart{}, nil
	}
}

// attempt notes a row that is about to be written under a heart: whether it was
// may never be learned.
func (l *leases) attempt(r *lease) {
	tried := *r
	tried.doubt = true
	l.cover(&tried)
}

// cover notes a row that was written under the handle's heart.
func (l *leases) cover(r *lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heart.id == r.heart {
		l.covered[r.Partition] = r
	}
}

// uncover notes that a lease is not held any more, and returns when it was renewed
// last.
func (l *leases) uncover(given *gobridge.Lease) (renewed time.Time, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	row := l.covered[given.Partition]
	if row == nil || row.Token != given.Token {
		return time.Time{}, false
	}
	delete(l.covered, given.Partition)
	last := *row
	last.under(&l.heart)
	return last.RenewedAt, true
}

// Renew implements [gobridge.LeaseStore].
func (l *leases) Renew(ctx context.Context, all []gobridge.Lease) ([]gobridge.Lease, error) {
	c := call{op: "renew leases"}
	if err := ctx.Err(); err != nil {
		return nil, fail(c.op, "", err)
	}
	id, beaten, written := l.together(all)
	out, alive, err := l.renewTogether(ctx, c, id, beaten)
	if !alive {
		written = all
	}
	renewed, err2 := l.renewRows(ctx, c, written)
	return append(out, renewed...), fail(c.op, "", errors.Join(err, err2))
}

// together sorts leases that are to be renewed into those that a beat renews and
// those whose rows must be written: because they are not under the heart, or
// their last error is another. If anything else is under it, the heart is left.
func (l *leases) together(all []gobridge.Lease) (id string, beaten []*lease, written []gobridge.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, asked := range all {
		if row := l.covered[asked.Partition]; row != nil && row.Token == asked.Token {
			n++
		}
	}
	if n < len(l.covered) {
		l.leave(l.heart.id)
	}
	for _, asked := range all {
		row := l.covered[asked.Partition]
		if row != nil && !row.doubt && row.Token == asked.Token && row.LastError == asked.LastError && row.LastErrorAt.Equal(asked.LastErrorAt) {
			beaten = append(beaten, row)
		} else {
			written = append(written, asked)
		}
	}
	return l.heart.id, beaten, written
}

// renewTogether renews leases with a beat, or reports false: then nothing is known.
func (l *leases) renewTogether(ctx context.Context, c call, id string, rows []*lease) (out []gobridge.Lease, alive bool, err error) {
	if len(rows) == 0 {
		return nil, true, nil
	}
	h, alive, err := l.beat(ctx, c, id)
	if err != nil {
		return nil, true, err
	}
	if !alive {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.leave(id)
		return nil, false, nil
	}
	for _, row := range rows {
		renewed := *row
		renewed.under(&h)
		out = append(out, renewed.Lease)
	}
	return out, true, nil
}

// renewRows renews leases row by row, and brings them under the heart.
func (l *leases) renewRows(ctx context.Context, c call, leases []gobridge.Lease) ([]gobridge.Lease, error) {
	if len(leases) == 0 {
		return nil, nil
	}
	h, err := l.ensureHeart(ctx, c)
	if err != nil {
		return nil, err
	}
	renewed, errs := make([]*lease, len(leases)), make([]error, len(leases))
	each(len(leases), func(i int) {
		renewed[i], errs[i] = l.renewRow(ctx, call{c.op, leases[i].Partition}, h, &leases[i])
	})
	var out []gobridge.Lease
	for i, got := range renewed {
		if got != nil {
			l.cover(got)
			out = append(out, got.Lease)
		} else if errs[i] == nil {
			l.uncover(&leases[i])
		}
	}
	return out, errors.Join(errs...)
}

// renewRow renews a lease by its row, and returns nil if it is not held any more.
func (l *leases) renewRow(ctx context.Context, c call, h heart, asked *gobridge.Lease) (*lease, error) {
	if asked.Partition == "" || len(escape(string(asked.Partition))) > 1024 {
		return nil, nil
	}
	nonce := newNonce()
	for {
		row, err := l.read(ctx, c)
		if err != nil || row.Revision == 0 || row.Token != asked.Token || row.Released {
			return nil, err
		}
		if row.nonce == nonce { // an attempt whose answer was lost
			return &row, nil
		}
		update, same := "SET #renewed_at = :now, #heart = :heart, #base = :base, #revision = :revision, #nonce = :nonce", "#revision = :over"
		values := item{
			":now": num(nanos(clean(l.store.now()))), ":heart": str(h.id), ":base": num(h.beats),
			":over": num(row.raw), ":revision": num(nextEpoch(row.Revision)), ":nonce": str(nonce),
		}
		if asked.LastError == "" && asked.LastErrorAt.IsZero() {
			update += " REMOVE #last_error, #last_error_at"
		} else {
			update += ", #last_error = :error, #last_error_at = :error_at"
			values[":error"], values[":error_at"] = text(asked.LastError), num(nanos(clean(asked.LastErrorAt)))
		}
		row.heart = h.id
		l.attempt(&row)
		out, err := l.store.touchItem(ctx, c, &ddb.UpdateItemInput{
			Key: leaseKey(asked.Partition), UpdateExpression: &update, ConditionExpression: &same,
			ExpressionAttributeNames: names(update, same), ExpressionAttributeValues: values, ReturnValues: types.ReturnValueAllNew,
		})
		if _, changed := failedCondition(err); changed {
			continue
		}
		if err != nil {
			return nil, err
		}
		got, err := parseLease(out.Attributes)
		return &got, err
	}
}
