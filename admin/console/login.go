package console

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"gobridge/admin"
)

// maxBy bounds the name of whoever logs in, in bytes.
const maxBy = 100

// loginPage asks for a token.
type loginPage struct {
	Next string // where to go then
	By   string
	Bad  string
	// Expired says that there was a session, and Kept that what was typed is kept.
	Expired, Kept bool
	// Again says that the browser may have a session after all: it does not send it
	// when a link from elsewhere led here.
	Again bool
	MaxBy int
}

// askLogin shows the login page, to which it leads from any other.
func (c *console) askLogin(w http.ResponseWriter, r *http.Request) {
	caller := admin.CallerOf(r.Context())
	if caller.Role >= admin.RoleRead {
		http.Redirect(w, r, local(r.URL.Query().Get("next")), http.StatusSeeOther)
		return
	}
	if r.URL.Path != "/login" {
		next := "/"
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			next = local(r.URL.RequestURI())
		}
		http.Redirect(w, r, "/login?"+url.Values{"next": {next}}.Encode(), http.StatusSeeOther)
		return
	}
	c.showLogin(w, r, http.StatusOK, loginPage{
		Next: local(r.URL.Query().Get("next")), Expired: caller.Session.Expired, Again: r.Header.Get("Cookie") == "",
	})
}

// keepTyped answers an act without a session, or from a page of another one: it asks
// for a login where there is none, and leads back to the form with what was typed. The
// act itself is not done: what it would do is shown anew.
func (c *console) keepTyped(w http.ResponseWriter, r *http.Request) {
	q := maps.Clone(r.URL.Query())
	for to, from := range map[string]string{"reason": "reason", "typed": "key"} {
		if text := r.PostFormValue(from); text != "" && len(text) <= maxReason {
			q.Set(to, text)
		}
	}
	page := loginPage{Next: local("/act?" + q.Encode()), Expired: true, Kept: q.Get("reason") != "" || q.Get("typed") != ""}
	if admin.CallerOf(r.Context()).Session.Stale {
		v := newView(r, "Nothing was done")
		v.Data = page
		c.write(w, r, http.StatusForbidden, "stale.html", v)
		return
	}
	c.showLogin(w, r, http.StatusForbidden, page)
}

func (c *console) showLogin(w http.ResponseWriter, r *http.Request, status int, page loginPage) {
	page.MaxBy = maxBy
	v := newView(r, "Log in")
	v.Data = page
	c.write(w, r, status, "login.html", v)
}

func (c *console) doLogin(w http.ResponseWriter, r *http.Request) {
	page := loginPage{Next: local(r.PostFormValue("next")), By: strings.TrimSpace(r.PostFormValue("by"))}
	status := http.StatusUnprocessableEntity
	switch {
	case page.By == "":
		page.Bad = "Give your name: it is kept beside what you do."
	case len(page.By) > maxBy:
		page.By, page.Bad = "", "That name is too long."
	default:
		err := c.surface.Login(w, r, strings.TrimSpace(r.PostFormValue("token")), page.By)
		if err == nil {
			http.Redirect(w, r, page.Next, http.StatusSeeOther)
			return
		}
		page.Bad, status = "No role has this token.", http.StatusForbidden
		switch {
		case errors.Is(err, admin.ErrWrongName):
			page.Bad, status = "That name has characters that can't be seen.", http.StatusUnprocessableEntity
		case errors.Is(err, admin.ErrTooManyFailures):
			page.Bad, status = "Too many wrong tokens came from your address: wait a minute.", http.StatusTooManyRequests
		}
	}
	c.showLogin(w, r, status, page)
}

func (c *console) doLogout(w http.ResponseWriter, r *http.Request) {
	c.surface.Logout(w, r)
	http.Redirect(w, r, "/login?"+url.Values{"next": {"/"}}.Encode(), http.StatusSeeOther)
}

// session tells a script whether there is one.
func (c *console) session(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"session":%t}`, admin.CallerOf(r.Context()).Role >= admin.RoleRead)
}
