// Package console is the web console: pages for whoever is called at night. The
// first one says what is stuck, why, and what to do about it.
//
// Everything is drawn on the server, from templates and files that are embedded.
// Pages work without JavaScript; with it, those that show how things stand are
// kept up to date by server-sent events. Nothing comes from another server, and
// neither scripts nor styles stand within a page, so that a strict content security
// policy holds.
//
// A page costs one look at the partitions, which everybody who looks within a
// second shares, and one page of rows at most. What an act would do is counted up to a
// bound, and an act that takes long is done in parts.
//
// Identities, keys and errors come from outside. Bytes of them that would not be
// seen, or would change how the text around them reads, are written as escapes,
// such as \x00 and \u202e.
package console
