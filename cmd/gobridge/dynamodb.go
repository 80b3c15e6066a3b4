package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/spf13/cobra"

	"gobridge/config"
	"gobridge/store/dynamodb"
)

// awsConnections is how many idle connections are kept: the SDK's ten are fewer
// than the calls that a busy bridge makes side by side, and each of the others
// would begin with a TLS handshake.
const awsConnections = 64

// newDynamoDB returns a client with the credentials of the environment.
func newDynamoDB(ctx context.Context, c *config.DynamoDB) (*ddb.Client, error) {
	options := []func(*awsconfig.LoadOptions) error{
		awsconfig.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConns, t.MaxIdleConnsPerHost = awsConnections, awsConnections
		})),
	}
	region := c.Region
	if region == "" {
		region = c.PinRegion
	}
	if region != "" {
		options = append(options, awsconfig.WithRegion(region))
	}
	loaded, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("AWS settings: %w", err)
	}
	if loaded.Region == "" {
		return nil, errors.New("AWS settings: no Region; set store.dynamodb.region or AWS_REGION")
	}
	return ddb.NewFromConfig(loaded, func(o *ddb.Options) {
		if c.Endpoint != nil {
			endpoint := c.Endpoint.Reveal()
			o.BaseEndpoint = &endpoint
		}
	}), nil
}

func dynamoDBOptions(c *config.DynamoDB, log *slog.Logger) dynamodb.Options {
	return dynamodb.Options{
		Table:         c.Table,
		Region:        c.PinRegion,
		Retention:     time.Duration(c.Retention),
		DeadRetention: time.Duration(c.DeadRetention),
		MaxDead:       int64(c.MaxDeadLetters),
		Logger:        log,
	}
}

func openDynamoDB(ctx context.Context, c *config.DynamoDB, observer dynamodb.Observer, log *slog.Logger) (openedStore, error) {
	client, err := newDynamoDB(ctx, c)
	if err != nil {
		return nil, err
	}
	options := dynamoDBOptions(c, log)
	options.Observer = observer
	store, err := dynamodb.Open(ctx, client, options)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	return tableStore{store}, nil
}

// newTable is the command for the table that a dynamodb store needs.
func newTable(p *place) *cobra.Command {
	table := &cobra.Command{
		Use:   "table",
		Short: "Make, check or plan the DynamoDB table of a configuration",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("say what to do: gobridge table ensure, check or plan")
		},
	}
	table.PersistentFlags().StringVarP(&p.config, "config", "c", "", "the configuration, which names the table ($"+configEnv+" when absent)")
	table.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return givenEmpty(cmd, "config") }
	table.AddCommand(
		&cobra.Command{
			Use: "ensure", Short: "Make the table if it is not there, and wait until it can be used", Args: wants(),
			RunE: p.onTable(func(ctx context.Context, client *ddb.Client, o dynamodb.Options) error {
				if err := dynamodb.EnsureTable(ctx, client, o); err != nil {
					return &failure{err}
				}
				fmt.Fprintf(p.stdout, "table %s is ready\n", o.Table)
				return nil
			}),
		},
		&cobra.Command{
			Use: "check", Short: "Compare the table with what is needed", Args: wants(),
			RunE: p.onTable(func(ctx context.Context, client *ddb.Client, o dynamodb.Options) error {
				if err := dynamodb.CheckTable(ctx, client, o); err != nil {
					return &failure{err}
				}
				fmt.Fprintf(p.stdout, "table %s is as it has to be\n", o.Table)
				return nil
			}),
		},
		&cobra.Command{
			Use: "plan", Short: "Print a CloudFormation template that makes the table", Args: wants(),
			RunE: func(*cobra.Command, []string) error {
				c, err := p.dynamoDB()
				if err != nil {
					return err
				}
				fmt.Fprint(p.stdout, dynamodb.Plan(dynamoDBOptions(c, nil)))
				return nil
			},
		},
	)
	return table
}

// dynamoDB returns the store of the configuration, which has to be of that kind.
func (p *place) dynamoDB() (*config.DynamoDB, error) {
	c, err := p.load()
	switch {
	case err != nil:
		return nil, err
	case c == nil:
		return nil, fmt.Errorf("no configuration is named: give --config FILE, or set $%s", configEnv)
	case c.Store.DynamoDB == nil:
		return nil, fmt.Errorf("%s: the store is no dynamodb table", p.file())
	}
	return c.Store.DynamoDB, nil
}

func (p *place) onTable(f func(context.Context, *ddb.Client, dynamodb.Options) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		c, err := p.dynamoDB()
		if err != nil {
			return err
		}
		client, err := newDynamoDB(cmd.Context(), c)
		if err != nil {
			return &failure{err}
		}
		return f(cmd.Context(), client, dynamoDBOptions(c, slog.New(slog.DiscardHandler)))
	}
}
