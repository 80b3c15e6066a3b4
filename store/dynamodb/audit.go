package dynamodb

import (
	"context"
	"fmt"
	"time"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
)

// Audit entries are rows under one partition key, numbered by a counter beside
// them. The number is taken before the act; one that then fails leaves a gap.
const (
	auditPK     = "AUDIT"
	auditHeadSK = "HEAD"
	auditPrefix = "ENTRY#"
)

func auditSK(n int64) string { return fmt.Sprintf("%s%020d", auditPrefix, n) }

// note is an audit entry that an act's transactions write, or count up.
type note struct {
	sk    string
	entry gobridge.AuditEntry
}

// newNote returns the entry for an act: the last one if it continues that, and
// else a new one, in the place of which the oldest goes.
func (s *Store) newNote(ctx context.Context, c call, entry gobridge.AuditEntry) (*note, error) {
	last, sk, err := s.auditEntries(ctx, c, 1)
	if err != nil {
		return nil, err
	}
	if len(last) == 1 && entry.Continues(&last[0]) {
		return &note{sk[0], entry}, nil
	}
	update := "ADD #last :one"
	out, err := s.updateItem(ctx, c, &ddb.UpdateItemInput{
		Key: key(auditPK, auditHeadSK), UpdateExpression: &update, ExpressionAttributeNames: names(update),
		ExpressionAttributeValues: item{":one": num(1)}, ReturnValues: types.ReturnValueUpdatedNew,
	})
	if err != nil {
		return nil, err
	}
	p := parser{it: out.Attributes}
	n := p.num("last")
	if n > gobridge.AuditLimit {
		if _, err := s.deleteItem(ctx, c, &ddb.DeleteItemInput{Key: key(auditPK, auditSK(n-gobridge.AuditLimit))}); err != nil {
			return nil, err
		}
	}
	return &note{auditSK(n), entry}, p.err
}

// write writes the entry, or adds a number of records to it.
func (n *note) write(s *Store, count int64) types.TransactWriteItem {
	update := "SET #at = :at, #action = :action, #scope = :scope, #by = :by, #reason = :reason ADD #count :count"
	return types.TransactWriteItem{Update: &types.Update{
		TableName: &s.table, Key: key(auditPK, n.sk), UpdateExpression: &update, ExpressionAttributeNames: names(update),
		ExpressionAttributeValues: item{
			":at": num(nanos(n.entry.At)), ":action": str(string(n.entry.Action)), ":scope": text(n.entry.Scope),
			":by": text(n.entry.By), ":reason": text(n.entry.Reason), ":count": num(count),
		},
	}}
}

// put is write by itself.
func (n *note) put(ctx context.Context, s *Store, c call, count int64) error {
	u := n.write(s, count).Update
	_, err := s.updateItem(ctx, c, &ddb.UpdateItemInput{
		Key: u.Key, UpdateExpression: u.UpdateExpression, ExpressionAttributeNames: u.ExpressionAttributeNames,
		ExpressionAttributeValues: u.ExpressionAttributeValues,
	})
	return err
}

// ListAudit implements [gobridge.Controls].
func (s *Store) ListAudit(ctx context.Context, limit int) ([]gobridge.AuditEntry, error) {
	c := call{op: "list audit"}
	if err := ctx.Err(); err != nil {
		return nil, fail(c.op, "", err)
	}
	if limit <= 0 {
		return nil, nil
	}
	out, _, err := s.auditEntries(ctx, c, limit)
	return out, fail(c.op, "", err)
}

func (s *Store) auditEntries(ctx context.Context, c call, limit int) (out []gobridge.AuditEntry, sks []string, err error) {
	condition := "#PK = :pk AND begins_with(#SK, :entries)"
	newestFirst := false
	err = s.queryAll(ctx, c, &ddb.QueryInput{
		KeyConditionExpression: &condition, ExpressionAttributeNames: names(condition),
		ExpressionAttributeValues: item{":pk": str(auditPK), ":entries": str(auditPrefix)},
		ConsistentRead:            yes(), ScanIndexForward: &newestFirst, Limit: ptr(int32(min(limit, 1000))),
	}, func(it item) (bool, error) {
		p := parser{it: it}
		out = append(out, gobridge.AuditEntry{
			At: p.time("at"), Action: gobridge.AuditAction(p.text("action")), Scope: p.text("scope"),
			Count: p.num("count"), By: p.text("by"), Reason: p.text("reason"),
		})
		sks = append(sks, p.text(attrSK))
		return len(out) < limit, p.err
	})
	return out, sks, err
}

// conditionSK is the sort key of a partition's row that says what its owner
// reported: a row of its own, for its text would make the fence row dear.
const conditionSK = "CONDITION"

// Report implements [gobridge.Outbox].
func (s *Store) Report(ctx context.Context, partition gobridge.Partition, token gobridge.Token, condition gobridge.Condition) error {
	c := call{op: "report", partition: partition}
	if !token.Valid() {
		return fail(c.op, partition, gobridge.ErrInvalidToken)
	}
	err := ctx.Err()
	if err == nil {
		err = checkPartition(partition)
	}
	if err == nil {
		_, err = s.raise(ctx, c, token)
	}
	if err == nil {
		err = s.run(ctx, &commit{call: c, version: token.Version, beside: []types.TransactWriteItem{{Put: &types.Put{
			TableName: &s.table, Item: conditionItem(partition, token, &condition, clean(s.now())),
		}}}})
	}
	return fail(c.op, partition, err)
}

func conditionItem(p gobridge.Partition, token gobridge.Token, condition *gobridge.Condition, now time.Time) item {
	it := key(partitionKey(p), conditionSK)
	it["owner"], it["version"], it["reported_at"] = text(token.Owner), num(token.Version), num(nanos(now))
	if condition.Down {
		it["down"] = num(1)
	}
	setNum(it, "since", nanos(condition.Since))
	setNum(it, "next_probe", nanos(condition.NextProbe))
	setText(it, "error", cut(condition.Error))
	return it
}

func parseCondition(it item) (gobridge.Condition, error) {
	p := parser{it: it}
	return gobridge.Condition{
		Down: p.num("down") != 0, Since: p.time("since"), Error: p.text("error"), NextProbe: p.time("next_probe"),
		Token: gobridge.Token{Owner: p.text("owner"), Version: p.num("version")}, At: p.time("reported_at"),
	}, p.err
}
