package admin

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// maxBody bounds the body of a request, imports aside.
const maxBody = 1 << 20

// guard checks what every request must be like before anything looks at it, and
// says to browsers what the answers must not be used for.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
			writeProblem(w, problem{
				Status: http.StatusMisdirectedRequest, Title: "Unknown host",
				Detail: "The request is for a host that is not this server's. Use its address, or name the host under admin.hosts.",
			})
			return
		}
		if changes(r.Method) && !s.sameOrigin(r) {
			writeProblem(w, problem{
				Status: http.StatusForbidden, Title: "Foreign origin",
				Detail: "The request comes from a page of another origin, which may change nothing here.",
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// changes reports whether a method may change something.
func changes(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
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

// sameOrigin reports whether a request comes from a page of this server, or from
// no page at all. Browsers say so in Sec-Fetch-Site (Fetch Metadata) or Origin.
func (s *Server) sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		return true
	}
	u, err := url.Parse(origins[0])
	return len(origins) == 1 && err == nil && u.Host == r.Host && u.Scheme == s.scheme()
}
