// Package admin serves what operators see and do over HTTP: a JSON API, health,
// metrics and the web console, on a listener of its own.
//
// # Who may do what
//
// A bearer token has a role: read sees, operate also acts. Health needs none and
// says nothing but whether the process works. The console logs in with a token,
// and goes by a session cookie from then on.
//
// What changes something needs the role operate and says who acts and why; the
// store's audit keeps both. It is refused to pages of other origins. Every request
// must name this server in its Host header, so that a name that somebody points at
// a loopback address (DNS rebinding) opens nothing.
//
// # The console
//
// A [Console] gets a [Surface] once and returns the handler of everything that is
// neither API nor health nor metrics. Requests arrive there checked: the session is
// valid or absent, the body bounded, the origin right. A POST whose form has not the
// session's field "csrf" arrives as nobody's, with [Session.Stale]: a page from before
// the last login sends such. [CallerOf] tells who asks. Pages
// that need a session the console itself refuses, or sends to its login page;
// [Surface.Login] and [Surface.Logout] begin and end one. A role is checked where it
// is needed: [Caller.Role].
package admin
