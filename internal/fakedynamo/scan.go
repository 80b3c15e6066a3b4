package fakedynamo

import "encoding/binary"

type scan struct {
	TableName                 string
	IndexName                 string
	FilterExpression          *string
	ProjectionExpression      *string
	ExpressionAttributeNames  map[string]string
	ExpressionAttributeValues item
	Limit                     *int
	ExclusiveStartKey         item
	ConsistentRead            bool
	Select                    string
	Segment                   *int
	TotalSegments             *int
	ReturnConsumedCapacity    string
}

func (r *scan) touches(add func(string, string, item)) { add(r.TableName, r.IndexName, nil) }

func (r *scan) run(s *Server, c *Call) (any, error) {
	p, selected, err := r.read(s, c)
	if err != nil {
		return nil, err
	}
	return s.page(c, p, selected, r.TableName, r.ReturnConsumedCapacity), nil
}

func (r *scan) read(s *Server, c *Call) (*page, selection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.showDue()
	var none selection
	parsed, err := s.parseAll(map[role]*string{roleFilter: r.FilterExpression, roleProjection: r.ProjectionExpression})
	if err != nil {
		return nil, none, err
	}
	e, err := bind(r.ExpressionAttributeNames, r.ExpressionAttributeValues, parsed[roleFilter], parsed[roleProjection])
	if err != nil {
		return nil, none, err
	}
	target, err := s.target(r.TableName, r.IndexName, r.ConsistentRead)
	if err != nil {
		return nil, none, err
	}
	selected, err := s.selection(target.table, target.index, r.Select, parsed[roleFilter], parsed[roleProjection], e)
	if err != nil {
		return nil, none, err
	}
	p, err := s.newPage(target, r.Limit)
	if err != nil {
		return nil, none, err
	}
	if err := r.fill(p, target); err != nil {
		return nil, none, err
	}
	return p, selected, p.pay(s, c, "", r.ConsistentRead)
}

// inSegment says which partitions a parallel scan's segment reads.
func (r *scan) inSegment() (func(hash string) bool, error) {
	if r.Segment == nil && r.TotalSegments == nil {
		return func(string) bool { return true }, nil
	}
	if r.Segment == nil || r.TotalSegments == nil || *r.TotalSegments < 1 || *r.Segment < 0 || *r.Segment >= *r.TotalSegments {
		return nil, validation("The Segment parameter is required with TotalSegments, zero-based, and must be less than it")
	}
	return func(hash string) bool {
		n := binary.BigEndian.Uint64([]byte(scanPlace(hash).sort))
		return n%uint64(*r.TotalSegments) == uint64(*r.Segment)
	}, nil
}

// fill reads partition after partition.
func (r *scan) fill(p *page, t target) error {
	inSegment, err := r.inSegment()
	if err != nil {
		return err
	}
	var from, start place
	var startHash string
	if r.ExclusiveStartKey != nil {
		if startHash, start, err = t.startPlace(r.ExclusiveStartKey); err != nil {
			return err
		}
		from = scanPlace(startHash)
	}
	t.space.scan.ascend(from, func(_ place, hash string) bool {
		if !inSegment(hash) {
			return true
		}
		resumed := r.ExclusiveStartKey != nil && hash == startHash
		begin := place{}
		if resumed {
			begin = start
		}
		room := true
		t.space.partitions[hash].ascend(begin, func(at place, rec *record) bool {
			if resumed && at == start {
				return true
			}
			room = p.take(rec)
			return room
		})
		return room
	})
	return nil
}
