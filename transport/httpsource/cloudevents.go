package httpsource

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"gobridge/internal/percent"
	"gobridge/messaging"
)

// setCloudEvent takes over a CloudEvent in binary mode (CloudEvents 1.0.2, HTTP
// binding, section 3.1), if the request is one, and returns the message ID that
// follows from it.
//
// An event's identity is its source and its ID together, so the message ID is
// both, with a space between: a source has none, so no two identities meet. The
// type becomes the subject, partitionkey the ordering key and time CreatedAt.
// All attributes stay with the message as ce- headers, with their values
// decoded.
func setCloudEvent(ctx context.Context, e *messaging.Envelope, header http.Header) (string, *problem) {
	if header["Ce-Specversion"] == nil {
		for _, name := range []string{"Ce-Id", "Ce-Source", "Ce-Type"} {
			if header[name] != nil {
				return "", invalid("ce-specversion", "is missing, though there is %s", strings.ToLower(name))
			}
		}
		return "", nil
	}
	attributes, p := ceAttributes(header)
	if p != nil {
		return "", p
	}
	if p := ceForms(attributes); p != nil {
		return "", p
	}
	// The body is not handed over: it is the data as it is, whatever the event says.
	ev, err := binding.ToEvent(ctx, cehttp.NewMessage(attributes, nil))
	if err != nil {
		return "", invalid("CloudEvent", "is not valid: %v", err)
	}
	if p := ceValid(ev); p != nil {
		return "", p
	}
	source := attributes["Ce-Source"][0]
	e.Subject = ev.Type()
	if at := ev.Time(); !at.IsZero() {
		e.CreatedAt = at.UTC()
	}
	for name, values := range attributes {
		if name != "Content-Type" {
			setHeader(e, strings.ToLower(name), values[0])
		}
	}
	if keys := attributes["Ce-Partitionkey"]; keys != nil {
		e.OrderingKey = keys[0]
	}
	return source + " " + attributes["Ce-Id"][0], nil // the SDK trims the ID
}

// ceAttributes returns the event's headers with their values decoded, which the
// SDK leaves to its caller.
func ceAttributes(header http.Header) (http.Header, *problem) {
	out := make(http.Header, 8)
	if contentType := header["Content-Type"]; contentType != nil {
		out["Content-Type"] = contentType
	}
	for canonical, values := range header {
		name, isAttribute := strings.CutPrefix(canonical, "Ce-")
		if !isAttribute {
			continue
		}
		shown := strings.ToLower(canonical)
		if !attributeName(name) {
			return nil, invalid(shown, "is no attribute name: it has letters and digits only")
		}
		if len(values) != 1 {
			return nil, invalid(shown, "is there %d times; it may be there once", len(values))
		}
		value := values[0]
		// Not every SDK encodes, so a stray '%' stands for itself.
		if decoded, err := percent.Decode(value); err == nil {
			value = decoded
		}
		if !printable(value) {
			return nil, invalid(shown, "is not valid UTF-8, or has control characters")
		}
		out[canonical] = []string{value}
	}
	return out, nil
}

// ceForms checks the attributes on which the SDK fails without naming them. It
// leaves those that are missing to the SDK, which does.
func ceForms(attributes http.Header) *problem {
	for _, canonical := range []string{"Ce-Specversion", "Ce-Id", "Ce-Source", "Ce-Type"} {
		if values := attributes[canonical]; values != nil && values[0] == "" {
			return invalid(strings.ToLower(canonical), "is empty")
		}
	}
	if version := attributes["Ce-Specversion"][0]; version != event.CloudEventsVersionV1 {
		return invalid("ce-specversion", "is %q; version 1.0 is understood", version)
	}
	if values := attributes["Ce-Source"]; values != nil {
		if strings.ContainsFunc(values[0], unicode.IsSpace) {
			return invalid("ce-source", "has white space, which no URI reference has")
		}
		if _, err := url.Parse(values[0]); err != nil {
			return invalid("ce-source", "is no URI reference, like /shop/orders")
		}
	}
	if values := attributes["Ce-Time"]; values != nil {
		if _, err := time.Parse(time.RFC3339Nano, values[0]); err != nil {
			return invalid("ce-time", notATime)
		}
	}
	return nil
}

func attributeName(name string) bool {
	for i := range len(name) {
		c := name[i] | 0x20
		if (c < 'a' || c > 'z') && (name[i] < '0' || name[i] > '9') {
			return false
		}
	}
	return name != ""
}

func ceValid(ev *event.Event) *problem {
	err := ev.Validate()
	if err == nil {
		return nil
	}
	var fields event.ValidationError
	if !errors.As(err, &fields) || len(fields) == 0 {
		return invalid("CloudEvent", "is not valid: %v", err)
	}
	// All that is wrong at once, in a stable order.
	names := slices.Sorted(maps.Keys(fields))
	var all []string
	for _, name := range names {
		all = append(all, "ce-"+name+": "+fields[name].Error())
	}
	p := invalid("CloudEvent", "is not valid: %s", strings.Join(all, "; "))
	p.Field = "ce-" + names[0]
	return p
}
