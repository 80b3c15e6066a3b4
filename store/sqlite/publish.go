package sqlite

import (
	"context"
	"errors"

	"gobridge"
	"gobridge/messaging"
)

// Route makes records of a message: one for each binding that takes it. A
// bridge's route handle is one.
type Route interface {
	Records(envelope messaging.Envelope) ([]gobridge.Record, error)
}

// PublishTx publishes messages to a route inside the caller's own transaction:
// they are delivered if, and only if, that commits. It is [Store.PersistTx] for
// what the route makes of the messages, and what is said there holds: tx is a
// *sql.Tx or what a library has in its place, nothing of a failed call is left in
// the transaction, and a drainer notices the commit by itself.
//
// A message whose ID the route has seen before is no failure: it is delivered
// once. One whose ID came with other content is [gobridge.ErrIdentityReused]; the
// other messages of the call are in the transaction then. Further errors are those of the route ([gobridge.ErrRejected],
// [gobridge.ErrInvalidRecord]). MaxOutboxDepth is not looked at: a destination
// that is down must not stop the business that the transaction is about.
func (s *Store) PublishTx(ctx context.Context, tx Execer, route Route, envelopes ...messaging.Envelope) error {
	var all []gobridge.Record
	for i := range envelopes {
		records, err := route.Records(envelopes[i])
		if err != nil {
			return err
		}
		all = append(all, records...)
	}
	err := s.PersistTx(ctx, tx, all)
	if errors.Is(err, gobridge.ErrDuplicateRecord) {
		return nil
	}
	return err
}
