package config

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"gobridge/internal/signature"
)

// minLeaseTerm is the shortest lease: below it, owners would do little else than
// renew.
const minLeaseTerm = 100 * time.Millisecond

// maxBody is the largest payload that a store takes, in bytes.
const maxBody = 16 << 20

// signatureLife is how long a signature is taken: from five minutes before its
// timestamp to five minutes after.
const signatureLife = 10 * time.Minute

// check reports what is wrong between fields that are right in themselves.
func (d *decoder) check(c *Config) {
	if c.LeaseTerm > 0 && time.Duration(c.LeaseTerm) < minLeaseTerm {
		d.reportAt(d.at["lease_term"], "lease_term", "take seconds", "%s is below %s", c.LeaseTerm, minLeaseTerm)
	}
	d.checkPaths(c)
	d.checkConnections(c)
	d.checkAdmin(c)
	d.checkKafka(c)
	d.checkMQTT(c)
	d.checkNATS(c)
	d.checkAMQP(c)
	d.checkAWS(c)
	d.checkFiles(c)
	d.checkNames(c)
	d.checkReplays(c)
	d.checkParked(c)
	for _, name := range slices.Sorted(maps.Keys(c.Routes)) {
		route := c.Routes[name]
		where := join("routes", name)
		if s := route.Source.HTTP; s != nil && s.MaxBody > maxBody {
			at := where + ".source.http.max_body"
			d.reportAt(d.at[at], at, "write 16MiB or less", "a message can have no more than %d bytes", maxBody)
		}
		if s := route.Source.HTTP; s != nil && s.Auth != nil {
			at := where + ".source.http.auth"
			d.checkTokens(&s.Auth.Bearer, at+".bearer")
			if s.Auth.Webhook != nil {
				d.checkSigning(&s.Auth.Webhook.Secrets, at+".webhook.secrets", true)
			}
		}
		for binding, b := range route.Bindings {
			if b.Webhook != nil {
				at := join(where+".bindings", binding) + ".webhook"
				d.checkSigning(&b.Webhook.Secrets, at+".secrets", false)
				d.checkHeaders(b.Webhook.Headers, at+".headers")
			}
			if b.OnFailure == "" {
				b.OnFailure = route.OnFailure
			}
			route.Bindings[binding] = b
		}
	}
}

// checkTokens takes empty tokens out, and reports when nothing is left: it
// would let everybody in, or nobody.
func (d *decoder) checkTokens(tokens *[]Secret, where string) {
	if len(*tokens) == 0 {
		return
	}
	for i, s := range *tokens {
		at := where + "[" + strconv.Itoa(i) + "]"
		if _, ok := d.at[at]; !ok {
			at = where // written without a list
		}
		if strings.ContainsFunc(s.Reveal(), func(r rune) bool { return r <= ' ' || r > '~' }) {
			d.reportAt(d.at[at], at, "a token is visible ASCII, as `openssl rand -hex 32` makes it; look for a stray space or line end",
				"the token has a character that no token can have")
		}
	}
	kept := slices.DeleteFunc(slices.Clone(*tokens), func(s Secret) bool { return s.reveal != nil && s.Reveal() == "" })
	if len(kept) == 0 {
		d.reportAt(d.at[where], where, "give one that is not", "the token is empty")
	}
	*tokens = kept
}

// checkSigning checks secrets of signatures and takes empty ones out.
func (d *decoder) checkSigning(secrets *[]Secret, where string, required bool) {
	if len(*secrets) == 0 {
		return
	}
	var kept []Secret
	for i, s := range *secrets {
		if s.reveal == nil {
			return // reported
		}
		if s.Reveal() == "" {
			continue
		}
		kept = append(kept, s)
		if _, err := signature.New([]string{s.Reveal()}); err != nil {
			at := where + "[" + strconv.Itoa(i) + "]"
			d.reportAt(d.at[at], at, "", "the secret %s", strings.TrimPrefix(err.Error(), "secret 1 "))
		}
	}
	if len(kept) == 0 && required {
		d.reportAt(d.at[where], where, "give at least one secret", "every secret is empty")
	}
	*secrets = kept
}

// checkHeaders reports values that no header can have.
func (d *decoder) checkHeaders(headers map[string]Secret, where string) {
	for name, value := range headers {
		if strings.ContainsFunc(value.Reveal(), func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			at := join(where, name)
			d.reportAt(d.at[at], at, "", "the value has a control character, which no header can have")
		}
	}
}

// checkPaths reports routes on one path.
func (d *decoder) checkPaths(c *Config) {
	taken := map[Path]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Routes)) {
		s := c.Routes[name].Source.HTTP
		if s == nil || s.Path == "" {
			continue
		}
		where := join("routes", name) + ".source.http.path"
		if other, ok := taken[s.Path]; ok {
			d.reportAt(d.at[where], where, "give each route a path of its own", "route %s has the path %s too", other, s.Path)
			continue
		}
		taken[s.Path] = name
	}
}

// checkFiles reports files that are written from two places.
func (d *decoder) checkFiles(c *Config) {
	taken := map[string]string{}
	claim := func(path, where string) {
		if path == "" {
			return
		}
		full, err := filepath.Abs(path)
		if err != nil {
			full = filepath.Clean(path)
		}
		if other, ok := taken[full]; ok {
			d.reportAt(d.at[where], where, "give each a file of its own", "%s is the file of %s too", quote(path), other)
			return
		}
		taken[full] = where
	}
	if c.Store.SQLite != nil {
		claim(c.Store.SQLite.Path, "store.sqlite.path")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Routes)) {
		bindings := c.Routes[name].Bindings
		for _, binding := range slices.Sorted(maps.Keys(bindings)) {
			if f := bindings[binding].File; f != nil {
				claim(f.Path, join(join("routes", name)+".bindings", binding)+".file.path")
			}
		}
	}
}

// checkNames reports names of files that are hardly meant.
func (d *decoder) checkNames(c *Config) {
	look := func(path, where string) {
		switch {
		case strings.ContainsFunc(path, unicode.IsControl):
			d.reportAt(d.at[where], where, "", "the path has a control character")
		case strings.HasPrefix(path, "~"):
			d.reportAt(d.at[where], where, "write it out, or begin it with ${HOME}", "the path begins with ~, which only a shell understands")
		case strings.HasPrefix(path, "$") && !strings.HasPrefix(path, "${"):
			d.reportAt(d.at[where], where, "write ${NAME}, with braces", "the path begins with $, and nothing is put in there")
		case path == ":memory:" || strings.HasPrefix(path, "file:"):
			d.reportAt(d.at[where], where, "write a path, like data/outbox.db; or store: { memory: {} }",
				"the path is written as SQLite has it, and would be taken for a file of that name")
		}
	}
	if c.Store.SQLite != nil {
		look(c.Store.SQLite.Path, "store.sqlite.path")
	}
	if c.Admin != nil && c.Admin.TLS != nil {
		look(c.Admin.TLS.Cert, "admin.tls.cert")
		look(c.Admin.TLS.Key, "admin.tls.key")
	}
	if c.HTTP.TLS != nil {
		look(c.HTTP.TLS.Cert, "http.tls.cert")
		look(c.HTTP.TLS.Key, "http.tls.key")
	}
	for name, route := range c.Routes {
		for binding, b := range route.Bindings {
			if b.File != nil {
				look(b.File.Path, join(join("routes", name)+".bindings", binding)+".file.path")
			}
		}
	}
}

// checkReplays reports what would let somebody who has seen a signed request
// send it again as a new message: a retention that ends before the signature
// does, and an ordering key that is not signed where it chooses the partition,
// for duplicates are known within a partition only.
func (d *decoder) checkReplays(c *Config) {
	for _, name := range slices.Sorted(maps.Keys(c.Routes)) {
		route := c.Routes[name]
		if signed(route) && route.Partitions > 1 && route.OrderingKey == nil {
			at := join("routes", name) + ".partitions"
			d.reportAt(d.at[at], at, "set ordering_key to something in the payload", "requests to route %s are signed, but not the ordering key "+
				"that they have as a header: sent again with another key, one would be a new message in another partition", name)
		}
	}
	where, retention := "store.memory.retention", Duration(0)
	if c.Store.SQLite != nil {
		where, retention = "store.sqlite.retention", c.Store.SQLite.Retention
	} else if c.Store.DynamoDB != nil {
		where, retention = "store.dynamodb.retention", c.Store.DynamoDB.Retention
	} else if c.Store.Memory != nil {
		retention = c.Store.Memory.Retention
	}
	if retention == 0 || time.Duration(retention) >= signatureLife {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.Routes)) {
		if signed(c.Routes[name]) {
			d.reportAt(d.at[where], where, "write 10m or more", "route %s takes signed requests, which are good for up to %s, "+
				"and would take them again after %s", name, Duration(signatureLife), retention)
			return
		}
	}
}

// UsesHTTP reports whether a route has an http source.
func (c *Config) UsesHTTP() bool {
	for _, r := range c.Routes {
		if r.Source.HTTP != nil {
			return true
		}
	}
	return false
}

// signed reports whether a route takes signed requests.
func signed(r Route) bool {
	s := r.Source.HTTP
	return s != nil && s.Auth != nil && s.Auth.Webhook != nil
}

// checkParked reports parked routes and bindings that are there.
func (d *decoder) checkParked(c *Config) {
	for i, p := range c.Parked {
		route, binding, ok := strings.Cut(string(p), "/")
		r, exists := c.Routes[route]
		if ok && exists {
			_, exists = r.Bindings[binding]
		}
		if exists && p != "" {
			where := "parked[" + strconv.Itoa(i) + "]"
			d.reportAt(d.at[where], where, "take it out of parked, or remove it from routes", "%s is parked and in use", quote(string(p)))
		}
	}
}

// warnings returns what deserves a second look.
func (d *decoder) warnings(c *Config) []Problem {
	out := d.warnAWS(c)
	if a := c.Admin; a != nil && a.TLS == nil && !a.Listen.Loopback() {
		out = append(out, d.problem(d.at["admin.listen"], "admin.listen", "set admin.tls, or have a proxy on this machine do it",
			"other machines can reach %s, and the tokens go there unencrypted", a.Listen))
	}
	if c.HTTP.Listen.Loopback() || !c.UsesHTTP() {
		return out
	}
	if c.HTTP.TLS == nil {
		out = append(out, d.problem(d.at["http.listen"], "http.listen", "set http.tls, or have a proxy on this machine do it",
			"other machines can reach %s, and it is not encrypted", c.HTTP.Listen))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Routes)) {
		if s := c.Routes[name].Source.HTTP; s != nil && s.Auth == nil {
			where := join("routes", name) + ".source.http"
			out = append(out, d.problem(d.at[where], where, "set auth",
				"other machines can reach %s, and anyone may post to route %s", c.HTTP.Listen, name))
		}
	}
	sortProblems(out)
	return out
}
