package admin

import (
	"context"
	"io"

	"gobridge"
	"gobridge/bridge"
	"gobridge/operate"
)

// Desk is what operators ask and do. [*operate.Desk] is one, on a store.
type Desk interface {
	Status(ctx context.Context) (operate.Status, error)
	Explain(ctx context.Context, q operate.Question) ([]operate.Answer, error)
	Known(ctx context.Context, t operate.Target) error
	Removed(route, binding string) bool
	Get(ctx context.Context, t operate.Target, id string) (gobridge.Record, error)
	Waiting(ctx context.Context, t operate.Target) (int64, error)
	Holding(ctx context.Context, t operate.Target, key, id string) ([]gobridge.Control, error)

	Pause(ctx context.Context, t operate.Target, who operate.Who) error
	Halt(ctx context.Context, t operate.Target, key, id string, who operate.Who) error
	Resume(ctx context.Context, t operate.Target, key, id string, who operate.Who) error
	Retry(ctx context.Context, filter gobridge.Filter, who operate.Who) (int, error)
	Do(ctx context.Context, job operate.Job, who operate.Who, progress func(int)) (operate.BulkReport, error)
	Move(ctx context.Context, from, to operate.Target, who operate.Who) (bridge.MoveResult, error)
	EndRemoved(ctx context.Context, t operate.Target, who operate.Who) (int, error)

	Dead(ctx context.Context, query gobridge.DeadQuery) (operate.DeadPage, error)
	Export(ctx context.Context, filter gobridge.Filter, w io.Writer, skip func(gobridge.Ref) bool, progress func(int)) (int, error)
	Import(ctx context.Context, r io.Reader, to operate.Target, who operate.Who, dryRun bool, progress func(int)) (operate.ImportReport, error)
	Audit(ctx context.Context, limit int) ([]gobridge.AuditEntry, error)
}

var _ Desk = (*operate.Desk)(nil)
