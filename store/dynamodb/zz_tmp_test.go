package dynamodb_test

import (
	"context"
	"errors"
	"testing"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"gobridge/store/dynamodb"
)

type putHook struct {
	*ddb.Client
	before func() error
}

func (p putHook) PutItem(ctx context.Context, in *ddb.PutItemInput, o ...func(*ddb.Options)) (*ddb.PutItemOutput, error) {
	if err := p.before(); err != nil {
		return nil, err
	}
	return p.Client.PutItem(ctx, in, o...)
}

func TestZZTwice(t *testing.T) {
	w := newTorn(t, nil)
	n := 0
	y, err := dynamodb.Open(t.Context(), putHook{client(w.db.server), func() error {
		if n++; n == 2 {
			return errors.New("gone")
		}
		return nil
	}}, dynamodb.Options{})
	w.must(err)
	once := false
	x, err := dynamodb.Open(t.Context(), putHook{client(w.db.server), func() error {
		if !once {
			once = true
			t.Log("y:", y.Persist(t.Context(), records("k", "A", "B")))
		}
		return nil
	}}, dynamodb.Options{})
	w.must(err)
	t.Log("x:", x.Persist(t.Context(), records("k", "A", "B")))
	t.Log(w.claim(w.claimer, 10))
}
