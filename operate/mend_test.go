package operate

import "testing"

func TestMendReadsStatusesNotAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"post to http://127.0.0.1:40151/: dial tcp 127.0.0.1:40151: connect: connection refused": "start the destination, or mend the way to it",
		"post to http://127.0.0.1:40311/x401: 500 Internal Server Error":                         "mend the destination",
		"post to https://h/: 401 Unauthorized: no":                                               "it refuses our credential: put a good one where the configuration takes it from, and reload (SIGHUP; a variable of the environment wants a restart)",
		"HTTP 403: go away":                                "it refuses our credential: put a good one where the configuration takes it from, and reload (SIGHUP; a variable of the environment wants a restart)",
		"post to https://h/: 404 Not Found":                "fix the address",
		"post to https://h/: 429 Too Many Requests":        "it asks to slow down: lower the rate",
		"dial tcp: lookup crm.example.com: no such host":   "fix the address",
		"tls: failed to verify certificate: x509: expired": "fix the certificate",
		"": "mend the destination",
	} {
		if got := mend(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
