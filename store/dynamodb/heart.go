package dynamodb

import (
	"context"
	"errors"
	"maps"
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
// Three rules make a beat as good as a renewal of each row:
//
//   - Whoever takes a lease over checks its row and its heart in one transaction.
//   - Whoever has beaten reads the rows afterwards, and counts as renewed what is
//     still his. What was taken over before the beat shows; what is not taken
//     over by then cannot be any more on what was observed before the beat.
//   - A heart beats for nothing but what is to be renewed. When something else is
//     under it, a new heart takes the others over, and the old one stops.
type heart struct {
	id    string
	beats int64
	at    time.Time // of the last beat, by the holder's clock
}

const (
	// heartPrefix begins no partition's sort key: there '#' is escaped.
	heartPrefix = "#HEART#"
	// epoch is what a row's own revision goes up by: more than a heart ever beats.
	epoch = 1 << 32
	// heartLife is how long a heart that has stopped is kept, beside the retention.
	heartLife = 30 * 24 * time.Hour
)

func heartKey(id string) item { return key(leasesPK, heartPrefix+id) }

// nextEpoch is the first revision of the epoch after one's.
func nextEpoch(revision int64) int64 { return (revision/epoch + 1) * epoch }

func parseHeart(it item) (heart, error) {
	p := parser{it: it}
	h := heart{id: strings.TrimPrefix(p.text(attrSK), heartPrefix), beats: p.num("beats"), at: p.time("renewed_at")}
	return h, p.err
}

// under makes a row say what its heart says.
func (r *lease) under(h *heart) {
	if r.Released || r.heart != h.id {
		return
	}
	r.beating, r.beats = true, h.beats
	r.Revision = r.raw + max(0, h.beats-r.base)
	if h.at.After(r.RenewedAt) {
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
	h = heart{id: newNonce() + newNonce(), at: clean(l.store.now())}
	row := heartKey(h.id)
	row["beats"], row["renewed_at"], row[attrTTL] = num(0), num(nanos(h.at)), num(l.heartEnds(h.at))
	if _, err := l.store.putItem(ctx, c, &ddb.PutItemInput{Item: row}); err != nil {
		return heart{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heart, l.covered = h, map[gobridge.Partition]gobridge.Lease{}
	return h, nil
}

func (l *leases) heartEnds(at time.Time) int64 {
	return at.Add(heartLife + l.store.options.Retention).Unix()
}

// beat renews everything under a heart. It reports false if there is no such
// heart any more.
func (l *leases) beat(ctx context.Context, c call, id string) (bool, error) {
	at := clean(l.store.now())
	update, exists := "SET #renewed_at = :now, #ttl = :ttl ADD #beats :one", "attribute_exists(#PK)"
	out, err := l.store.updateItem(ctx, c, &ddb.UpdateItemInput{
		Key: heartKey(id), UpdateExpression: &update, ConditionExpression: &exists,
		ExpressionAttributeNames: names(update, exists), ExpressionAttributeValues: item{
			":now": num(nanos(at)), ":ttl": num(l.heartEnds(at)), ":one": num(1),
		},
		ReturnValues: types.ReturnValueAllNew,
	})
	if _, gone := failedCondition(err); gone {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	h, err := parseHeart(out.Attributes)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heart.id == id && l.heart.beats < h.beats {
		l.heart = h
	}
	return true, err
}

// stop gives a heart up: what is renewed next comes under a new one.
func (l *leases) stop(id string) {
	if l.heart.id == id {
		l.heart, l.covered = heart{}, nil
	}
}

// cover notes a row that was written under the handle's heart.
func (l *leases) cover(r *lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heart.id == r.heart {
		l.covered[r.Partition] = r.Lease
	}
}

// uncover notes that a lease is given up, and returns when it was renewed last.
func (l *leases) uncover(given *gobridge.Lease) (renewed time.Time, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	row, ok := l.covered[given.Partition]
	if !ok || row.Token != given.Token {
		return time.Time{}, false
	}
	delete(l.covered, given.Partition)
	if l.heart.at.After(row.RenewedAt) {
		return l.heart.at, true
	}
	return row.RenewedAt, true
}

// together sorts leases that are to be renewed into those that a beat renews and
// those whose rows must be written: because they are not under the heart, or
// their last error is another. If anything else is under it, the heart stops.
func (l *leases) together(all []gobridge.Lease) (id string, beaten, written []gobridge.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	others := maps.Clone(l.covered)
	for _, asked := range all {
		if others[asked.Partition].Token == asked.Token {
			delete(others, asked.Partition)
		}
	}
	if len(others) > 0 {
		l.stop(l.heart.id)
	}
	for _, asked := range all {
		row, ok := l.covered[asked.Partition]
		if ok && row.Token == asked.Token && row.LastError == asked.LastError && row.LastErrorAt.Equal(asked.LastErrorAt) {
			beaten = append(beaten, asked)
		} else {
			written = append(written, asked)
		}
	}
	return l.heart.id, beaten, written
}

// Renew implements [gobridge.LeaseStore].
func (l *leases) Renew(ctx context.Context, all []gobridge.Lease) ([]gobridge.Lease, error) {
	c := call{op: "renew leases"}
	if err := ctx.Err(); err != nil {
		return nil, fail(c.op, "", err)
	}
	id, beaten, written := l.together(all)
	out, rest, err := l.renewTogether(ctx, c, id, beaten)
	renewed, err2 := l.renewRows(ctx, c, append(written, rest...))
	return append(out, renewed...), fail(c.op, "", errors.Join(err, err2))
}

// renewTogether renews leases with a beat. Rest are those that turn out not to be
// under the heart, or all when it is gone.
func (l *leases) renewTogether(ctx context.Context, c call, id string, leases []gobridge.Lease) (out, rest []gobridge.Lease, err error) {
	if len(leases) == 0 {
		return nil, nil, nil
	}
	alive, err := l.beat(ctx, c, id)
	if err != nil {
		return nil, nil, err
	}
	if !alive {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stop(id)
		return nil, leases, nil
	}
	rows, err := l.list(ctx, c) // after the beat
	if err != nil {
		return nil, nil, err
	}
	byPartition := map[gobridge.Partition]*lease{}
	for i := range rows {
		byPartition[rows[i].Partition] = &rows[i]
	}
	for _, asked := range leases {
		switch r := byPartition[asked.Partition]; {
		case r == nil || r.Token != asked.Token || r.Released:
			l.uncover(&asked)
		case r.heart == id && r.beating:
			out = append(out, r.Lease)
		default: // an older request of this handle's was late
			rest = append(rest, asked)
		}
	}
	return out, rest, nil
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

func (l *leases) renewRow(ctx context.Context, c call, h heart, asked *gobridge.Lease) (*lease, error) {
	if asked.Partition == "" || len(escape(string(asked.Partition))) > 1024 {
		return nil, nil
	}
	update := "SET #renewed_at = :now, #heart = :heart, #base = :base"
	values := item{
		":now": num(nanos(clean(l.store.now()))), ":heart": str(h.id), ":base": num(h.beats), ":epoch": num(int64(epoch)),
		":owner": text(asked.Token.Owner), ":version": num(asked.Token.Version),
	}
	if asked.LastError == "" && asked.LastErrorAt.IsZero() {
		update += " ADD #revision :epoch REMOVE #last_error, #last_error_at"
	} else {
		update += ", #last_error = :error, #last_error_at = :error_at ADD #revision :epoch"
		values[":error"], values[":error_at"] = text(asked.LastError), num(nanos(clean(asked.LastErrorAt)))
	}
	out, err := l.store.updateItem(ctx, c, &ddb.UpdateItemInput{
		Key: leaseKey(asked.Partition), UpdateExpression: &update, ConditionExpression: ptr(heldLease),
		ExpressionAttributeNames: names(update, heldLease), ExpressionAttributeValues: values,
		ReturnValues: types.ReturnValueAllNew,
	})
	if _, lost := failedCondition(err); lost {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	got, err := parseLease(out.Attributes)
	return &got, err
}
