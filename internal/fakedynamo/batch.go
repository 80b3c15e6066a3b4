package fakedynamo

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
)

// Limits of batches (API reference, "BatchGetItem" and "BatchWriteItem").
const (
	maxBatchGet       = 100
	maxBatchWrite     = 25
	maxBatchBytes     = 16 << 20
	maxBatchPartition = 1 << 20 // of one BatchGetItem from one partition
)

type keysAndAttributes struct {
	Keys                     []item
	ConsistentRead           bool              `json:",omitempty"`
	ProjectionExpression     *string           `json:",omitempty"`
	ExpressionAttributeNames map[string]string `json:",omitempty"`
}

type batchGetItem struct {
	RequestItems           map[string]keysAndAttributes
	ReturnConsumedCapacity string
}

type batchGetResult struct {
	Responses        map[string][]item `json:"-"`
	UnprocessedKeys  map[string]keysAndAttributes
	ConsumedCapacity []*consumed `json:",omitempty"`
}

func (r batchGetResult) encode() ([]byte, error) {
	rest, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	out := []byte(`{"Responses":{`)
	for _, name := range slices.Sorted(maps.Keys(r.Responses)) {
		if out[len(out)-1] != '{' {
			out = append(out, ',')
		}
		out = append(slices.Grow(out, sizeOf(r.Responses[name])), `"`+name+`":`...)
		out = appendItems(out, r.Responses[name])
	}
	return append(append(out, "},"...), rest[1:]...), nil
}

func (r *batchGetItem) touches(add func(string, string, item)) {
	for _, name := range slices.Sorted(maps.Keys(r.RequestItems)) {
		for _, key := range r.RequestItems[name].Keys {
			add(name, "", key)
		}
	}
}

func (r *batchGetItem) run(s *Server, c *Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.showDue()
	total := 0
	for _, keys := range r.RequestItems {
		total += len(keys.Keys)
	}
	if total > maxBatchGet {
		return nil, validation("Too many items requested for the BatchGetItem call")
	}
	b := &batchGet{server: s, call: c, most: batchShare(c, total), partitions: map[string]int{},
		out: batchGetResult{Responses: map[string][]item{}, UnprocessedKeys: map[string]keysAndAttributes{}}}
	if total == 0 {
		return nil, validation("1 validation error detected: Value '{}' at 'requestItems' failed to satisfy constraint: Member must have length greater than or equal to 1")
	}
	for _, name := range slices.Sorted(maps.Keys(r.RequestItems)) {
		if err := b.table(name, r.RequestItems[name]); err != nil {
			return nil, err
		}
	}
	if b.throttled != nil && b.read == 0 {
		return nil, b.throttled
	}
	b.out.ConsumedCapacity = c.consumedAll(r.ReturnConsumedCapacity)
	return b.out, nil
}

// batchShare is how many items a faulty batch processes.
func batchShare(c *Call, total int) int {
	if c.kind() == Partial {
		return max(1, total/2)
	}
	return total
}

// batchGet is a BatchGetItem under way.
type batchGet struct {
	server     *Server
	call       *Call
	most       int
	read       int
	bytes      int
	partitions map[string]int
	throttled  error
	out        batchGetResult
}

func (b *batchGet) table(name string, keys keysAndAttributes) error {
	shape, err := b.server.shape(keys.ProjectionExpression, keys.ExpressionAttributeNames)
	if err != nil {
		return err
	}
	t, err := b.server.active(name)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, key := range keys.Keys {
		if err := t.schema.checkKey(key); err != nil {
			return err
		}
		itemKey := t.schema.itemKey(key)
		if seen[itemKey] {
			return validation("Provided list of item keys contains duplicates")
		}
		seen[itemKey] = true
	}
	b.out.Responses[name] = []item{}
	left := keys
	left.Keys = nil
	for _, key := range keys.Keys {
		found, ok := b.get(t, t.schema.itemKey(key), keys.ConsistentRead)
		switch {
		case !ok:
			left.Keys = append(left.Keys, key)
		case found != nil:
			b.out.Responses[name] = append(b.out.Responses[name], shape.of(found.item))
		}
	}
	if left.Keys != nil {
		b.out.UnprocessedKeys[name] = left
	}
	return nil
}

// get reads one item; false leaves it unprocessed. As a whole a batch may see
// part of a transaction.
func (b *batchGet) get(t *table, key string, consistent bool) (*record, bool) {
	found := t.readable(consistent).shown[key]
	size, partition := found.sizeOrZero(), t.name+"\x00"+partitionOf(key)
	if b.read >= b.most || b.bytes+size > maxBatchBytes || b.partitions[partition] > maxBatchPartition {
		return nil, false
	}
	cost := units{read: readUnits(size, consistent)}
	if err := b.server.refuseRead(b.call, t, "", partitionOf(key), cost.read); err != nil {
		b.throttled = err
		return nil, false
	}
	b.read++
	b.bytes += size
	b.partitions[partition] += size
	b.call.charge(t.name, cost)
	return found, true
}

type writeRequest struct {
	PutRequest    *struct{ Item item } `json:",omitempty"`
	DeleteRequest *struct{ Key item }  `json:",omitempty"`
}

type batchWriteItem struct {
	RequestItems                map[string][]writeRequest
	ReturnConsumedCapacity      string
	ReturnItemCollectionMetrics string
}

type batchWriteResult struct {
	UnprocessedItems map[string][]writeRequest
	ConsumedCapacity []*consumed `json:",omitempty"`
}

func (r *batchWriteItem) touches(add func(string, string, item)) {
	for _, name := range slices.Sorted(maps.Keys(r.RequestItems)) {
		for _, w := range r.RequestItems[name] {
			if _, in, err := w.input(name); err == nil {
				in.touch(add)
			}
		}
	}
}

func (w writeRequest) input(tableName string) (actionKind, *writeInput, error) {
	switch {
	case w.PutRequest != nil && w.DeleteRequest == nil:
		return actionPut, &writeInput{TableName: tableName, Item: w.PutRequest.Item}, nil
	case w.DeleteRequest != nil && w.PutRequest == nil:
		return actionDelete, &writeInput{TableName: tableName, Key: w.DeleteRequest.Key}, nil
	}
	return 0, nil, validation("Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes")
}

func (r *batchWriteItem) run(s *Server, c *Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.showDue()
	actions, requests, err := r.actions(s)
	if err != nil {
		return nil, err
	}
	out := batchWriteResult{UnprocessedItems: map[string][]writeRequest{}}
	most, written := batchShare(c, len(actions)), 0
	var refusal error
	for i, a := range actions {
		if written < most {
			_, _, err = s.perform(c, a)
			if err == nil {
				written++
				continue
			}
			var failed *apiError
			if !errors.As(err, &failed) || failed.throttling == nil && failed.code != "TransactionConflictException" {
				return nil, err
			}
			refusal = err
		}
		out.UnprocessedItems[a.table.name] = append(out.UnprocessedItems[a.table.name], requests[i])
	}
	if refusal != nil && written == 0 {
		return nil, refusal
	}
	out.ConsumedCapacity = c.consumedAll(r.ReturnConsumedCapacity)
	return out, nil
}

func (r *batchWriteItem) actions(s *Server) ([]*action, []writeRequest, error) {
	var actions []*action
	var requests []writeRequest
	seen := map[lockKey]bool{}
	bytes := 0
	for _, name := range slices.Sorted(maps.Keys(r.RequestItems)) {
		for _, w := range r.RequestItems[name] {
			kind, in, err := w.input(name)
			if err != nil {
				return nil, nil, err
			}
			a, err := s.action(kind, in)
			if err != nil {
				return nil, nil, err
			}
			if seen[a.lock()] {
				return nil, nil, validation("Provided list of item keys contains duplicates")
			}
			seen[a.lock()] = true
			bytes += a.put.sizeOrZero()
			actions, requests = append(actions, a), append(requests, w)
		}
	}
	if len(actions) == 0 || len(actions) > maxBatchWrite {
		return nil, nil, validation("1 validation error detected: Value at 'requestItems' failed to satisfy constraint: Map value must satisfy constraint: [Member must have length less than or equal to 25, Member must have length greater than or equal to 1]")
	}
	if bytes > maxBatchBytes {
		return nil, nil, validation("The batch exceeds 16 MB: %d bytes", bytes)
	}
	return actions, requests, nil
}
