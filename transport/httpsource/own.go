package httpsource

import (
	"net/http"
	"slices"
	"strings"

	"gobridge/internal/spelling"
)

// ownPrefix begins the names of gobridge's own headers.
const ownPrefix = "Gobridge-"

// usedNames are gobridge's own headers that a client may set.
var usedNames = []string{
	"Gobridge-Id", "Gobridge-Ordering-Key", "Gobridge-Subject", "Gobridge-Created-At", "Gobridge-Not-Before", "Gobridge-Expires-At",
}

// bridgeNames are those that a webhook of gobridge sets beside them, so that one
// bridge can post to another. Of the first four the message is made; the others
// tell of the delivery that the request is, and nothing is made of them.
var bridgeNames = []string{
	"Gobridge-Dedupe-Id", "Gobridge-Content-Type", "Gobridge-Headers", "Gobridge-Event",
	"Gobridge-Route", "Gobridge-Binding", "Gobridge-Partition", "Gobridge-Seq", "Gobridge-Token-Version",
	"Gobridge-Attempt", "Gobridge-Redrives", "Gobridge-Delivery-Count", "Gobridge-Received-At",
}

// checkOwn refuses a header that looks like one of gobridge's own and is none: a
// misspelt ordering key would cost the message its order, and nobody would know.
func checkOwn(header http.Header) *problem {
	unknown := ""
	for canonical := range header {
		if !strings.HasPrefix(canonical, ownPrefix) || slices.Contains(usedNames, canonical) || slices.Contains(bridgeNames, canonical) {
			continue
		}
		if unknown == "" || canonical < unknown { // the same one each time
			unknown = canonical
		}
	}
	if unknown == "" {
		return nil
	}
	names := make([]string, len(usedNames))
	for i, name := range usedNames {
		names[i] = strings.ToLower(strings.TrimPrefix(name, ownPrefix))
	}
	guess := spelling.Nearest(strings.TrimPrefix(unknown, ownPrefix), names)
	if guess == "" {
		return invalid(unknown, "is no header of gobridge; those that say something of a message are %s", strings.Join(usedNames, ", "))
	}
	return invalid(unknown, "is no header of gobridge; the nearest is %s", usedNames[slices.Index(names, guess)])
}
