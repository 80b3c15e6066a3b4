package fakedynamo

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

const payPerRequest = "PAY_PER_REQUEST"

type attributeDefinition struct {
	AttributeName string
	AttributeType kind
}

type keyElement struct {
	AttributeName string
	KeyType       string
}

type projectionInput struct {
	ProjectionType   string
	NonKeyAttributes []string `json:",omitempty"`
}

type throughputInput struct {
	ReadCapacityUnits  int64
	WriteCapacityUnits int64
}

type indexInput struct {
	IndexName             string
	KeySchema             []keyElement
	Projection            *projectionInput
	ProvisionedThroughput *throughputInput
	OnDemandThroughput    *onDemandThroughput
}

// onDemandThroughput is accepted and described, not enforced; SetThroughput
// enforces.
type onDemandThroughput struct {
	MaxReadRequestUnits  int64 `json:",omitempty"`
	MaxWriteRequestUnits int64 `json:",omitempty"`
}

type tag struct{ Key, Value string }

type createTable struct {
	TableName                 string
	AttributeDefinitions      []attributeDefinition
	KeySchema                 []keyElement
	GlobalSecondaryIndexes    []indexInput
	BillingMode               string
	ProvisionedThroughput     *throughputInput
	OnDemandThroughput        *onDemandThroughput
	DeletionProtectionEnabled bool
	TableClass                string
	Tags                      []tag
	SSESpecification          *struct {
		Enabled                 bool
		SSEType, KMSMasterKeyId string
	}
	StreamSpecification *struct {
		StreamEnabled  bool
		StreamViewType string
	}
}

var (
	tableNames = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)
	indexNames = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,255}$`)
)

func (r *createTable) touches(add func(string, string, item)) { add(r.TableName, "", nil) }

func (r *createTable) run(s *Server, _ *Call) (any, error) {
	t, err := r.table(s)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tables[t.name] != nil {
		return nil, dynamoError("ResourceInUseException", "Table already exists: %s", t.name)
	}
	s.tables[t.name] = t
	d := t.describe()
	d.TableStatus = "CREATING"
	return map[string]any{"TableDescription": d}, nil
}

func (r *createTable) table(s *Server) (*table, error) {
	if !tableNames.MatchString(r.TableName) {
		return nil, validation("Value '%s' at 'tableName' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+ and have a length of 3 to 255", r.TableName)
	}
	if r.StreamSpecification != nil && r.StreamSpecification.StreamEnabled {
		return nil, unsupported("streams")
	}
	if r.BillingMode != payPerRequest && r.ProvisionedThroughput == nil {
		return nil, validation("One or more parameter values were invalid: ReadCapacityUnits and WriteCapacityUnits must both be specified when BillingMode is PROVISIONED")
	}
	if r.BillingMode == payPerRequest && r.ProvisionedThroughput != nil {
		return nil, validation("One or more parameter values were invalid: Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode is PAY_PER_REQUEST")
	}
	schema, err := newKeySchema(r.KeySchema, r.AttributeDefinitions)
	if err != nil {
		return nil, err
	}
	t := &table{name: r.TableName, definitions: r.AttributeDefinitions, schema: schema, base: newSpace(schema, false),
		billing: r.BillingMode, throughput: r.ProvisionedThroughput, created: s.now(), waits: s.options.Describes, misses: s.options.DescribeMisses, protected: r.DeletionProtectionEnabled}
	if t.billing == "" {
		t.billing = "PROVISIONED"
	}
	for _, in := range r.GlobalSecondaryIndexes {
		x, err := t.newIndex(in, t.definitions)
		if err != nil {
			return nil, err
		}
		x.created, x.waits = t.created, t.waits
		t.indexes = append(t.indexes, x)
	}
	return t, t.checkDefinitions(t.definitions)
}

func newKeySchema(elements []keyElement, definitions []attributeDefinition) (keySchema, error) {
	var schema keySchema
	for i, e := range elements {
		at := slices.IndexFunc(definitions, func(d attributeDefinition) bool { return d.AttributeName == e.AttributeName })
		if at < 0 {
			return schema, validation("One or more parameter values were invalid: Some index key attributes are not defined in AttributeDefinitions. Keys: [%s]", e.AttributeName)
		}
		k := keyAttribute{name: e.AttributeName, kind: definitions[at].AttributeType}
		if k.kind != kindString && k.kind != kindNumber && k.kind != kindBinary {
			return schema, validation("Member must satisfy enum value set: [B, N, S]")
		}
		switch {
		case i == 0 && e.KeyType == "HASH":
			k.max = maxHashKey
			schema.hash = k
		case i == 1 && e.KeyType == "RANGE" && e.AttributeName != schema.hash.name:
			k.max = maxSortKey
			schema.sort = k
		case i > 1:
			return schema, unsupported("keys of more than two attributes")
		default:
			return schema, validation("Invalid KeySchema: The first KeySchemaElement is not a HASH key type, or the second is not another attribute's RANGE")
		}
	}
	if schema.hash.name == "" {
		return schema, validation("Invalid KeySchema: Some index key attribute have no definition")
	}
	return schema, nil
}

func (t *table) newIndex(in indexInput, definitions []attributeDefinition) (*index, error) {
	if !indexNames.MatchString(in.IndexName) {
		return nil, validation("Value '%s' at 'indexName' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+", in.IndexName)
	}
	if t.index(in.IndexName) != nil {
		return nil, validation("One or more parameter values were invalid: Duplicate index name: %s", in.IndexName)
	}
	schema, err := newKeySchema(in.KeySchema, definitions)
	if err != nil {
		return nil, err
	}
	if in.Projection == nil {
		return nil, validation("One or more parameter values were invalid: Unknown ProjectionType: null")
	}
	p := projection{in.Projection.ProjectionType, in.Projection.NonKeyAttributes}
	switch {
	case p.kind != "ALL" && p.kind != "KEYS_ONLY" && p.kind != "INCLUDE":
		return nil, validation("One or more parameter values were invalid: Unknown ProjectionType: %s", p.kind)
	case (p.kind == "INCLUDE") != (len(p.also) > 0):
		return nil, validation("One or more parameter values were invalid: ProjectionType is %s, but NonKeyAttributes is %v", p.kind, p.also)
	case len(p.also) > 20:
		return nil, validation("One or more parameter values were invalid: NonKeyAttributes has more than 20 attributes")
	}
	for _, name := range p.also {
		if t.schema.has(name) || schema.has(name) {
			return nil, validation("One or more parameter values were invalid: NonKeyAttributes may not name a key attribute: %s", name)
		}
	}
	return &index{name: in.IndexName, projection: p, space: newSpace(schema, true)}, nil
}

// checkDefinitions refuses definitions that no key uses.
func (t *table) checkDefinitions(definitions []attributeDefinition) error {
	for _, d := range definitions {
		used := t.schema.has(d.AttributeName)
		for _, x := range t.indexes {
			used = used || x.space.schema.has(d.AttributeName)
		}
		if !used {
			return validation("One or more parameter values were invalid: Some AttributeDefinitions are not used. AttributeDefinitions: [%s]", d.AttributeName)
		}
	}
	return nil
}

type updateTable struct {
	TableName                   string
	AttributeDefinitions        []attributeDefinition
	BillingMode                 string
	ProvisionedThroughput       *throughputInput
	DeletionProtectionEnabled   *bool
	GlobalSecondaryIndexUpdates []struct {
		Create *indexInput
		Delete *struct{ IndexName string }
	}
}

func (r *updateTable) touches(add func(string, string, item)) { add(r.TableName, "", nil) }

func (r *updateTable) run(s *Server, _ *Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[r.TableName]
	switch {
	case t == nil:
		return nil, dynamoError("ResourceNotFoundException", "Requested resource not found: Table: %s not found", r.TableName)
	case t.status() != "ACTIVE":
		return nil, dynamoError("ResourceInUseException", "Attempt to change a resource which is still in use: Table is being updated: %s", r.TableName)
	case len(r.GlobalSecondaryIndexUpdates) > 1:
		return nil, dynamoError("LimitExceededException", "Subscriber limit exceeded: Only 1 online index can be created or deleted simultaneously per table")
	}
	if r.BillingMode != "" {
		t.billing = r.BillingMode
	}
	if r.ProvisionedThroughput != nil {
		t.throughput = r.ProvisionedThroughput
	}
	if r.DeletionProtectionEnabled != nil {
		t.protected = *r.DeletionProtectionEnabled
	}
	for _, u := range r.GlobalSecondaryIndexUpdates {
		var err error
		switch {
		case u.Create != nil && u.Delete == nil:
			err = r.create(s, t, *u.Create)
		case u.Delete != nil && u.Create == nil:
			err = t.deleteIndex(u.Delete.IndexName, s.options.Describes)
		default:
			err = unsupported("index updates other than one Create or one Delete")
		}
		if err != nil {
			return nil, err
		}
	}
	d := t.describe()
	d.TableStatus = "UPDATING"
	return map[string]any{"TableDescription": d}, nil
}

func (r *updateTable) create(s *Server, t *table, in indexInput) error {
	definitions := slices.Clone(t.definitions)
	for _, d := range r.AttributeDefinitions {
		if !slices.Contains(definitions, d) {
			definitions = append(definitions, d)
		}
	}
	x, err := t.newIndex(in, definitions)
	if err != nil {
		return err
	}
	x.created, x.waits = s.now(), s.options.Describes
	for key, rec := range t.base.shown {
		if shown := t.entry(x, rec); shown != nil {
			x.space.set(key, shown)
		}
	}
	t.indexes = append(t.indexes, x)
	t.definitions = definitions
	return t.checkDefinitions(definitions)
}

func (t *table) deleteIndex(name string, waits int) error {
	x := t.index(name)
	if x == nil {
		return dynamoError("ResourceNotFoundException", "Requested resource not found: Index: %s not found", name)
	}
	x.deleting, x.waits = true, waits
	t.settled()
	return nil
}

type describeTable struct{ TableName string }

func (r *describeTable) touches(add func(string, string, item)) { add(r.TableName, "", nil) }

func (r *describeTable) run(s *Server, _ *Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[r.TableName]
	if t == nil {
		return nil, dynamoError("ResourceNotFoundException", "Requested resource not found: Table: %s not found", r.TableName)
	}
	if t.misses > 0 {
		t.misses--
		return nil, dynamoError("ResourceNotFoundException", "Requested resource not found: Table: %s not found", r.TableName)
	}
	d := t.describe()
	if t.step(); t.deleting && t.waits <= 0 {
		delete(s.tables, t.name)
	}
	return map[string]any{"Table": d}, nil
}

type deleteTable struct{ TableName string }

func (r *deleteTable) touches(add func(string, string, item)) { add(r.TableName, "", nil) }

func (r *deleteTable) run(s *Server, _ *Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[r.TableName]
	switch {
	case t == nil:
		return nil, dynamoError("ResourceNotFoundException", "Requested resource not found: Table: %s not found", r.TableName)
	case t.protected:
		return nil, validation("Resource cannot be deleted as it is currently protected against deletion. Disable deletion protection first.")
	case t.status() != "ACTIVE":
		return nil, dynamoError("ResourceInUseException", "Attempt to change a resource which is still in use: Table is being created or deleted: %s", r.TableName)
	}
	t.deleting, t.waits = true, s.options.Describes
	if t.waits == 0 {
		delete(s.tables, t.name)
	}
	d := t.describe()
	d.TableStatus = "DELETING"
	return map[string]any{"TableDescription": d}, nil
}

type listTables struct {
	ExclusiveStartTableName string
	Limit                   *int
}

func (r *listTables) touches(func(string, string, item)) {}

func (r *listTables) run(s *Server, _ *Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := 100
	if r.Limit != nil {
		limit = *r.Limit
	}
	if limit < 1 || limit > 100 {
		return nil, validation("Value '%d' at 'limit' failed to satisfy constraint: Member must be between 1 and 100", limit)
	}
	names := []string{}
	for name := range s.tables {
		if name > r.ExclusiveStartTableName {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, strings.Compare)
	out := map[string]any{}
	if len(names) > limit {
		names = names[:limit]
		out["LastEvaluatedTableName"] = names[limit-1]
	}
	out["TableNames"] = names
	return out, nil
}

// seconds is how DynamoDB writes a time.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
