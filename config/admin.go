package config

import "strconv"

// Admin is the admin listener.
type Admin struct {
	Listen   Address     `config:"listen" default:"127.0.0.1:9090" doc:"Host and port to listen on. Port 0 takes a free one, which is logged."`
	TLS      *TLS        `config:"tls" doc:"Serve HTTPS; plain HTTP when absent. The files are read anew when they change."`
	Tokens   AdminTokens `config:"tokens,required" doc:"Who may look and who may act, by bearer tokens of 16 characters or more."`
	Hosts    []string    `config:"hosts" example:"[bridge.example.com]" doc:"Names under which the listener may be addressed, beside its address and, on loopback, localhost. Requests for other hosts are refused."`
	Payloads string      `config:"payloads" enum:"read,operate,nobody" default:"operate" doc:"Which role may see the payloads of messages."`
}

// AdminTokens are tokens by role. One of them is given at least.
type AdminTokens struct {
	Read    []Secret `config:"read" single:"true" example:"${file:secrets/read}" doc:"The token that may look, or a list of tokens, any of which will do. Empty ones are left out. Tokens from files are read anew every few seconds."`
	Operate []Secret `config:"operate" single:"true" example:"${file:secrets/operate}" doc:"The token that may act as well, or a list of them."`
}

// checkAdmin reports what is wrong between the fields of the admin listener.
func (d *decoder) checkAdmin(c *Config) {
	a := c.Admin
	if a == nil {
		return
	}
	d.checkTokens(&a.Tokens.Read, "admin.tokens.read")
	d.checkTokens(&a.Tokens.Operate, "admin.tokens.operate")
	if len(a.Tokens.Read)+len(a.Tokens.Operate) == 0 && len(d.problems) == 0 {
		d.reportAt(d.at["admin.tokens"], "admin.tokens", "give read, operate or both", "there is no token, and nobody could look or act")
	}
	if c.UsesHTTP() && a.Listen.meets(c.HTTP.Listen) {
		where, other, address := "admin.listen", "http.listen", c.HTTP.Listen
		if _, given := d.at[where]; !given { // it has its default
			where, other, address = other, where, a.Listen
		}
		d.reportAt(d.at[where], where, "give each a port of its own", "port %s is that of %s too, %s", address.port(), other, address)
	}
	for i, h := range a.Hosts {
		at := "admin.hosts[" + strconv.Itoa(i) + "]"
		var address Address
		if address.parse(h+":1") != nil || h == "" {
			d.reportAt(d.at[at], at, "write a name without a port, like bridge.example.com", "%s is not the name of a host", quote(h))
		}
	}
}
