package fakedynamo

// Throughput is what a table or an index can take each second; 0 means any
// amount. The partition figures hold for each partition key by itself; DynamoDB's
// are 1,000 write and 3,000 read units.
type Throughput struct {
	Read           float64
	Write          float64
	PartitionRead  float64
	PartitionWrite float64
}

type resource struct{ table, index string }

type meterKey struct {
	resource
	partition string
	write     bool
	whole     bool
}

// SetThroughput limits a table, or its index if index is not empty. A second is a
// second of the server's clock; what one leaves over is not carried on.
func (s *Server) SetThroughput(tableName, index string, t Throughput) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.throughput[resource{tableName, index}] = t
}

// demand is what a request asks of one resource and partition.
type demand struct {
	resource
	partition string
	units     float64
	write     bool
}

// admit takes the units, or none of them and says which demand was refused.
func (s *Server) admit(demands []demand) *demand {
	if len(s.throughput) == 0 {
		return nil
	}
	if second := s.now().Unix(); second != s.metered {
		clear(s.meters)
		s.metered = second
	}
	taken := map[meterKey]float64{}
	for i, d := range demands {
		limits := s.throughput[d.resource]
		whole, part := limits.Read, limits.PartitionRead
		if d.write {
			whole, part = limits.Write, limits.PartitionWrite
		}
		for key, limit := range map[meterKey]float64{
			{d.resource, "", d.write, true}:           whole,
			{d.resource, d.partition, d.write, false}: part,
		} {
			taken[key] += d.units
			if limit > 0 && s.meters[key]+taken[key] > limit {
				return &demands[i]
			}
		}
	}
	for key, units := range taken {
		s.meters[key] += units
	}
	return nil
}

// writeDemands are what one item's write asks for.
func (t *table) writeDemands(key string, cost units, effects []effect) []demand {
	out := []demand{{resource{t.name, ""}, partitionOf(key), cost.write, true}}
	for _, e := range effects {
		entry := e.shown
		if entry == nil {
			entry = e.old
		}
		hash := entry.item[e.index.space.schema.hash.name].sortable()
		out = append(out, demand{resource{t.name, e.index.name}, hash, cost.indexWrite[e.index.name], true})
	}
	return out
}

// throttled is the error for a plain operation: which one depends on how the
// table is billed.
func (t *table) throttled(index string, write bool) *apiError {
	code, message := t.throttleText(index)
	name := "ProvisionedThroughputExceededException"
	if code == reasonThrottling {
		name = "ThrottlingException"
	}
	e := dynamoError(name, "%s", message)
	kind, operation, limit := "Table", "Read", "ProvisionedThroughputExceeded"
	arn := tableARN(t.name)
	if index != "" {
		kind, arn = "Index", arn+"/index/"+index
	}
	if write {
		operation = "Write"
	}
	if code == reasonThrottling {
		limit = "KeyRangeThroughputExceeded"
	}
	e.throttling = []throttlingReason{{kind + operation + limit, arn}}
	return e
}

// throttleText is the code and message of a cancellation reason.
func (t *table) throttleText(index string) (code, message string) {
	switch {
	case t.billing != payPerRequest && index == "":
		return reasonThroughput, "The level of configured provisioned throughput for the table was exceeded. Consider increasing your provisioning level with the UpdateTable API."
	case t.billing != payPerRequest:
		return reasonThroughput, "The level of configured provisioned throughput for one or more global secondary indexes of the table was exceeded. Consider increasing your provisioning level for the under-provisioned global secondary indexes with the UpdateTable API."
	case index == "":
		return reasonThrottling, "Throughput exceeds the current capacity of your table or index. DynamoDB is automatically scaling your table or index so please try again shortly. If exceptions persist, check if you have a hot key: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html."
	default:
		return reasonThrottling, "Throughput exceeds the current capacity for one or more global secondary indexes. DynamoDB is automatically scaling your index so please try again shortly."
	}
}
