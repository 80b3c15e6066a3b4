package fakedynamo

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Namespaces that DynamoDB puts before the error's name.
const (
	dynamoSpace     = "com.amazonaws.dynamodb.v20120810#"
	validateSpace   = "com.amazon.coral.validate#"
	serviceSpace    = "com.amazon.coral.service#"
	unsupportedName = "UnsupportedByFake"
)

// apiError is an answer other than 200.
type apiError struct {
	status  int
	space   string
	code    string
	message string
	item    item     // of a failed condition that asked for ALL_OLD
	reasons []reason // of a cancelled transaction

	throttling []throttlingReason
}

// throttlingReason says which resource refused.
type throttlingReason struct {
	Reason   string `json:"reason"`
	Resource string `json:"resource"`
}

// reason says what became of one item of a cancelled transaction.
type reason struct {
	Code    string
	Message string `json:",omitempty"`
	Item    item   `json:",omitempty"`
}

func (e *apiError) Error() string { return e.code + ": " + e.message }

// body is the JSON of the answer. Names are capitalised as DynamoDB does it: the
// Message of a cancelled transaction, the reasons of one of two throttling errors.
func (e *apiError) body() []byte {
	out := map[string]any{"__type": e.space + e.code, "message": e.message}
	if e.reasons != nil {
		delete(out, "message")
		out["Message"], out["CancellationReasons"] = e.message, e.reasons
	}
	if e.item != nil {
		out["Item"] = e.item
	}
	switch {
	case e.throttling != nil && e.code == "ThrottlingException":
		out["throttlingReasons"] = e.throttling
	case e.throttling != nil:
		out["ThrottlingReasons"] = e.throttling
	}
	data, err := json.Marshal(out)
	if err != nil {
		return []byte(`{"__type":"InternalServerError"}`)
	}
	return data
}

func dynamoError(code, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, space: dynamoSpace, code: code, message: fmt.Sprintf(format, args...)}
}

func validation(format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, space: validateSpace, code: "ValidationException", message: fmt.Sprintf(format, args...)}
}

func serialization(message string) *apiError {
	return &apiError{status: http.StatusBadRequest, space: serviceSpace, code: "SerializationException", message: message}
}

// unsupported refuses what the fake does not do, so that no test passes by luck.
func unsupported(format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, code: unsupportedName, message: "the fake does not support " + fmt.Sprintf(format, args...)}
}

func noTable() *apiError {
	return dynamoError("ResourceNotFoundException", "Requested resource not found")
}

func conditionFailed(old item) *apiError {
	e := dynamoError("ConditionalCheckFailedException", "The conditional request failed")
	e.item = old
	return e
}

func transactionConflict() *apiError {
	return dynamoError("TransactionConflictException", "Transaction is ongoing for the item")
}

func cancelled(reasons []reason) *apiError {
	codes := make([]string, len(reasons))
	for i, r := range reasons {
		codes[i] = r.Code
	}
	e := dynamoError("TransactionCanceledException",
		"Transaction cancelled, please refer cancellation reasons for specific reasons [%s]", strings.Join(codes, ", "))
	e.reasons = reasons
	return e
}

// Codes of cancellation reasons.
const (
	reasonNone       = "None"
	reasonCondition  = "ConditionalCheckFailed"
	reasonConflict   = "TransactionConflict"
	reasonThroughput = "ProvisionedThroughputExceeded"
	reasonThrottling = "ThrottlingError"
	reasonValidation = "ValidationError"
)

func internalError() *apiError {
	e := dynamoError("InternalServerError", "The request processing has failed because of an unknown error, exception or failure.")
	e.status = http.StatusInternalServerError
	return e
}

func unavailable() *apiError {
	e := dynamoError("ServiceUnavailable", "The service is currently unavailable or busy.")
	e.status = http.StatusServiceUnavailable
	return e
}
