package torture

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"gobridge/internal/fakedynamo"
	"gobridge/internal/faultproxy"
	"gobridge/internal/testbinary"
)

// envEndpoint names an emulator of DynamoDB to use instead of the fake.
const envEndpoint = "GOBRIDGE_DYNAMODB_ENDPOINT"

// region is what requests are signed for; emulators take any.
const region = "us-east-1"

// table is a DynamoDB table that every process reaches through a proxy of its own.
type table struct {
	name    string
	address string // of the emulator, or of the fake
	fake    *fakedynamo.Server
	proxies []*faultproxy.Proxy
}

// newTable makes a table for so many processes: in the emulator that the
// environment names, or in the fake.
func newTable(t *testing.T, processes int) *table {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	d := &table{name: strings.NewReplacer("/", "-", "#", "").Replace(t.Name())}
	endpoint := os.Getenv(envEndpoint)
	if endpoint == "" {
		d.fake = fakedynamo.New(fakedynamo.Options{Overlap: true})
		t.Cleanup(d.fake.Close)
		endpoint = d.fake.URL()
	}
	var ok bool
	if d.address, ok = strings.CutPrefix(endpoint, "http://"); !ok {
		t.Fatalf("%s is %q; a proxy can stand before an address as http://127.0.0.1:8000 only", envEndpoint, endpoint)
	}
	for range processes {
		d.proxies = append(d.proxies, startProxy(t, d.address))
	}
	return d
}

// startProxy runs a proxy until the test ends.
func startProxy(t *testing.T, upstream string) *faultproxy.Proxy {
	t.Helper()
	proxy, err := faultproxy.Start(upstream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}

// store is the store of a process in its config file.
func (d *table) store(process int) string {
	return fmt.Sprintf("{ dynamodb: { table: %q, region: %q, endpoint: %q } }", d.name, region, "http://"+d.proxies[process].Addr())
}

// ensure makes the table as an operator would. The test's end deletes it.
func (d *table) ensure(t *testing.T, config string) {
	t.Helper()
	command := exec.Command(testbinary.Path(), "table", "ensure", "--config", config)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("make the table: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		transport := &http.Transport{DisableKeepAlives: true}
		client := ddb.New(ddb.Options{
			Region: region, BaseEndpoint: aws.String("http://" + d.address), HTTPClient: &http.Client{Transport: transport},
			Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
		})
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := client.DeleteTable(ctx, &ddb.DeleteTableInput{TableName: &d.name}); err != nil {
			t.Errorf("table %s is left: %v", d.name, err)
		}
	})
}
