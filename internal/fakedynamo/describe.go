package fakedynamo

import (
	"slices"
	"time"
)

// Made-up names of the account and its Region.
func tableARN(name string) string { return "arn:aws:dynamodb:us-east-1:000000000000:table/" + name }

type tableDescription struct {
	TableName                 string
	TableStatus               string
	TableArn                  string
	TableId                   string
	CreationDateTime          float64
	ItemCount                 int
	TableSizeBytes            int
	AttributeDefinitions      []attributeDefinition
	KeySchema                 []keyElement
	BillingModeSummary        *billingModeSummary `json:",omitempty"`
	ProvisionedThroughput     throughputDescription
	GlobalSecondaryIndexes    []indexDescription `json:",omitempty"`
	DeletionProtectionEnabled bool
	Replicas                  []replicaDescription `json:",omitempty"`
	GlobalTableVersion        string               `json:",omitempty"`
	MultiRegionConsistency    string               `json:",omitempty"`
}

type replicaDescription struct {
	RegionName    string
	ReplicaStatus string
}

type billingModeSummary struct{ BillingMode string }

type throughputDescription struct {
	ReadCapacityUnits      int64
	WriteCapacityUnits     int64
	NumberOfDecreasesToday int64
}

type indexDescription struct {
	IndexName             string
	IndexStatus           string
	IndexArn              string
	Backfilling           bool `json:",omitempty"`
	KeySchema             []keyElement
	Projection            projectionInput
	ProvisionedThroughput throughputDescription
	ItemCount             int
	IndexSizeBytes        int
}

func (s keySchema) elements() []keyElement {
	out := []keyElement{{s.hash.name, "HASH"}}
	if s.sort.name != "" {
		out = append(out, keyElement{s.sort.name, "RANGE"})
	}
	return out
}

func (t *table) status() string {
	switch {
	case t.deleting:
		return "DELETING"
	case t.waits > 0:
		return "CREATING"
	}
	for _, x := range t.indexes {
		if x.waits > 0 {
			return "UPDATING"
		}
	}
	return "ACTIVE"
}

func (x *index) status() string {
	switch {
	case x.deleting:
		return "DELETING"
	case x.waits > 0:
		return "CREATING"
	}
	return "ACTIVE"
}

// step brings what is under way one DescribeTable call further: the table first,
// then its indexes, so that an active table may have an index that is not.
func (t *table) step() {
	if t.waits > 0 {
		t.waits--
		return
	}
	for _, x := range t.indexes {
		x.waits = max(0, x.waits-1)
	}
	t.settled()
}

// settled drops the indexes whose deletion is done.
func (t *table) settled() {
	t.indexes = slices.DeleteFunc(t.indexes, func(x *index) bool { return x.deleting && x.waits == 0 })
	t.definitions = slices.DeleteFunc(slices.Clone(t.definitions), func(d attributeDefinition) bool {
		used := t.schema.has(d.AttributeName)
		for _, x := range t.indexes {
			used = used || x.space.schema.has(d.AttributeName)
		}
		return !used
	})
}

func (t *table) describe() *tableDescription {
	d := &tableDescription{
		TableName: t.name, TableStatus: t.status(), TableArn: tableARN(t.name), TableId: "00000000-0000-0000-0000-000000000000",
		CreationDateTime: seconds(t.created), ItemCount: len(t.base.shown), TableSizeBytes: t.base.bytes,
		AttributeDefinitions: t.definitions, KeySchema: t.schema.elements(), DeletionProtectionEnabled: t.protected,
	}
	if t.regions != nil {
		d.Replicas, d.GlobalTableVersion, d.MultiRegionConsistency = t.regions, "2019.11.21", t.consistency
	}
	var throughput throughputDescription
	if t.billing == payPerRequest {
		d.BillingModeSummary = &billingModeSummary{t.billing}
	} else if t.throughput != nil {
		throughput.ReadCapacityUnits, throughput.WriteCapacityUnits = t.throughput.ReadCapacityUnits, t.throughput.WriteCapacityUnits
	}
	d.ProvisionedThroughput = throughput
	for _, x := range t.indexes {
		d.GlobalSecondaryIndexes = append(d.GlobalSecondaryIndexes, indexDescription{
			IndexName: x.name, IndexStatus: x.status(), IndexArn: tableARN(t.name) + "/index/" + x.name, Backfilling: x.status() == "CREATING",
			KeySchema: x.space.schema.elements(), Projection: projectionInput{x.projection.kind, x.projection.also},
			ProvisionedThroughput: throughput, ItemCount: len(x.space.shown), IndexSizeBytes: x.space.bytes,
		})
	}
	return d
}

// active finds a table that data operations may use.
func (s *Server) active(name string) (*table, error) {
	if name == "" {
		return nil, validation("Value null at 'tableName' failed to satisfy constraint: Member must not be null")
	}
	t := s.tables[name]
	if t == nil || t.deleting || t.waits > 0 {
		return nil, noTable()
	}
	return t, nil
}

type ttlSpecification struct {
	AttributeName string
	Enabled       bool
}

type updateTimeToLive struct {
	TableName               string
	TimeToLiveSpecification ttlSpecification
}

func (r *updateTimeToLive) touches(add func(string, string, item)) { add(r.TableName, "", nil) }

func (r *updateTimeToLive) run(s *Server, _ *Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.active(r.TableName)
	if err != nil {
		return nil, err
	}
	spec := r.TimeToLiveSpecification
	now := s.now()
	switch {
	case spec.AttributeName == "":
		return nil, validation("Value null at 'timeToLiveSpecification.attributeName' failed to satisfy constraint: Member must not be null")
	case !t.ttlChanged.IsZero() && now.Sub(t.ttlChanged) < time.Hour:
		return nil, validation("Time to live has been modified multiple times within a fixed interval")
	case spec.Enabled && t.ttl != "":
		return nil, validation("TimeToLive is already enabled")
	case !spec.Enabled && t.ttl == "":
		return nil, validation("TimeToLive is already disabled")
	case !spec.Enabled && t.ttl != spec.AttributeName:
		return nil, validation("TimeToLive is active on a different AttributeName: current AttributeName is %s", t.ttl)
	}
	t.ttlChanged, t.ttl = now, ""
	if spec.Enabled {
		t.ttl = spec.AttributeName
	}
	return map[string]any{"TimeToLiveSpecification": spec}, nil
}

type describeTimeToLive struct{ TableName string }

func (r *describeTimeToLive) touches(add func(string, string, item)) { add(r.TableName, "", nil) }

func (r *describeTimeToLive) run(s *Server, _ *Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.active(r.TableName)
	if err != nil {
		return nil, err
	}
	d := map[string]any{"TimeToLiveStatus": "DISABLED"}
	if t.ttl != "" {
		d = map[string]any{"TimeToLiveStatus": "ENABLED", "AttributeName": t.ttl}
	}
	return map[string]any{"TimeToLiveDescription": d}, nil
}
