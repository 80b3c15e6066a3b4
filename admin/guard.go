package admin

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// maxBody bounds the body of a request, imports aside.
const maxBody = 1 << 20

// guard checks what every request must be like before anything looks at it, and
// says to browsers what the answers must not be used for.
func (s *Server) guard(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection() // GET, HEAD and OPTIONS change nothing here
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.working.TryRLock() {
			writeProblem(w, newProblem(http.StatusServiceUnavailable, "The server has ended."))
			return
		}
		defer s.working.RUnlock()
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
			"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		if !s.knownHost(r.Host) {
			writeProblem(w, newProblem(http.StatusMisdirectedRequest,
				"The request is for a host that is not this server's. Use its address, or name the host under admin.hosts."))
			return
		}
		if origins.Check(r) != nil {
			writeProblem(w, newProblem(http.StatusForbidden, "The request comes from a page of another origin, which may change nothing here."))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// knownHost reports whether a Host header names this server. Its port is that of
// whatever leads here and says nothing.
func (s *Server) knownHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	if slices.Contains(s.hosts, name) {
		return true
	}
	// By an address nobody can be led here from elsewhere.
	ip := net.ParseIP(name)
	return ip != nil && (s.anyAddress || ip.Equal(s.address))
}

// nameHosts notes the names under which the server may be addressed.
func (s *Server) nameHosts() {
	host, _, _ := net.SplitHostPort(s.options.Address)
	s.address = net.ParseIP(host)
	s.anyAddress = host == "" || s.address != nil && s.address.IsUnspecified()
	if s.anyAddress || s.address != nil && s.address.IsLoopback() || host == "localhost" {
		s.hosts = append(s.hosts, "localhost", "127.0.0.1", "::1")
	}
	if s.address == nil && host != "" {
		s.hosts = append(s.hosts, strings.ToLower(host))
	}
	for _, h := range s.options.Hosts {
		s.hosts = append(s.hosts, strings.ToLower(h))
	}
}
