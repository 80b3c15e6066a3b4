package httpsource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"gobridge/internal/mapping"
	"gobridge/internal/percent"
	"gobridge/messaging"
)

// mode is how a request carries its messages (HTTP binding of CloudEvents 1.0.2,
// section 3): what is no event is in binary mode too.
type mode int

const (
	modeBinary mode = iota
	modeStructured
	modeBatch
)

const (
	structuredType = "application/cloudevents+json"
	batchType      = "application/cloudevents-batch+json"
)

// contentMode reads the mode off the content type.
func contentMode(contentType string) (mode, *problem) {
	media, parameters, err := mime.ParseMediaType(contentType)
	if !strings.HasPrefix(media, "application/cloudevents") {
		return modeBinary, nil // setContent has checked it
	}
	if charset := parameters["charset"]; err == nil && charset != "" && !strings.EqualFold(charset, "utf-8") {
		return modeBinary, plainProblem(http.StatusUnsupportedMediaType, "CloudEvents in JSON are taken in UTF-8 only.")
	}
	switch media {
	case structuredType:
		return modeStructured, nil
	case batchType:
		return modeBatch, nil
	}
	return modeBinary, plainProblem(http.StatusUnsupportedMediaType, "CloudEvents are taken in binary mode, with the attributes as ce- "+
		"headers and the data as the body, and in JSON, as "+structuredType+" or "+batchType+".")
}

// event returns the attributes of a CloudEvent in binary mode (section 3.1), or
// nil if the request is none.
func event(header http.Header) (mapping.Attributes, *problem) {
	if header["Ce-Specversion"] == nil {
		for _, name := range []string{"Ce-Id", "Ce-Source", "Ce-Type"} {
			if header[name] != nil {
				return nil, invalid("ce-specversion", "is missing, though there is %s", strings.ToLower(name))
			}
		}
		return nil, nil
	}
	attributes := make(mapping.Attributes, 8)
	for canonical, values := range header {
		name, isAttribute := strings.CutPrefix(canonical, "Ce-")
		if !isAttribute {
			continue
		}
		name = strings.ToLower(name)
		if len(values) != 1 {
			return nil, invalid("ce-"+name, "is there %d times; it may be there once", len(values))
		}
		attributes[name] = values[0]
		// Not every SDK encodes, so a stray '%' stands for itself.
		if decoded, err := percent.Decode(values[0]); err == nil {
			attributes[name] = decoded
		}
	}
	if err := attributes.Check("ce-"); err != nil {
		return nil, fromMapping("", err)
	}
	return attributes, nil
}

// structured returns the attributes and the data of an event in JSON (section
// 3.2). Place begins the names of fields.
func structured(place string, body []byte) (mapping.Attributes, []byte, *problem) {
	attributes, data, err := mapping.Unstructure(body)
	if err == nil {
		err = attributes.Check("")
	}
	if err != nil {
		return nil, nil, fromMapping(place, err)
	}
	return attributes, data, nil
}

// splitBatch returns the events of a batch (JSON event format, section 4), which
// has most of them at most.
func splitBatch(body []byte, most int) ([]json.RawMessage, *problem) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if first, err := decoder.Token(); err != nil {
		return nil, invalid("batch", "is no JSON: %v", err)
	} else if first != json.Delim('[') {
		return nil, invalid("batch", "is no JSON array")
	}
	var all []json.RawMessage
	for decoder.More() {
		if len(all) == most {
			p := tooLarge("batch", 0)
			p.Detail = fmt.Sprintf("The batch has more than %d events, which is the limit.", most)
			return nil, p
		}
		var one json.RawMessage
		if err := decoder.Decode(&one); err != nil {
			return nil, invalid("batch", "is no JSON: %v", err)
		}
		all = append(all, one)
	}
	if _, err := decoder.Token(); err != nil {
		return nil, invalid("batch", "is no JSON: %v", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid("batch", "has something behind it")
	}
	return all, nil
}

// fromMapping makes a problem of what the mapping says is wrong.
func fromMapping(place string, err error) *problem {
	var field *mapping.FieldError
	if !errors.As(err, &field) {
		return invalid("CloudEvent", "is not valid: %v", err)
	}
	return invalid(place+field.Name, "%s", field.Problem)
}

// setEvent makes an event's attributes part of the message. An event's identity
// is its source and its ID together, so the message ID is both, with a space
// between: a source has none, so no two identities meet. Of an event that a
// bridge made of a message, that message is made again.
func setEvent(e *messaging.Envelope, attributes mapping.Attributes, made bool) (id string) {
	if made {
		attributes.Restore(e)
		return ""
	}
	attributes.Apply(e)
	return attributes.ID()
}
