package config

import (
	"errors"
	"strconv"
	"strings"
)

// Telemetry is where metrics and traces go, beside /metrics of the admin listener.
type Telemetry struct {
	OTLP *OTLP `config:"otlp" doc:"Send metrics, and traces if wanted, to an OpenTelemetry collector over OTLP/HTTP."`
}

// OTLP is a collector.
type OTLP struct {
	Endpoint URL               `config:"endpoint,required" example:"http://127.0.0.1:4318" doc:"The collector's base address: /v1/metrics and /v1/traces are added."`
	Headers  map[string]Secret `config:"headers" keys:"header" doc:"Headers to send with every request, for authentication. Their values are kept secret."`
	Interval Duration          `config:"interval" default:"30s" doc:"How often metrics are sent."`
	Traces   Percent           `config:"traces" default:"0%" example:"5%" doc:"Which share of the messages that come without a trace context is traced. A message that comes with one follows its sampling flag. With 0% nothing is traced."`
}

// Percent is a share of a whole, from 0 to 1.
type Percent float64

func (p *Percent) parse(text string) error {
	number, ok := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(v >= 0 && v <= 100) || strings.ContainsAny(number, "+-eExXpP_nN") {
		return errors.New("is not a percentage")
	}
	*p = Percent(v / 100)
	return nil
}

// String returns the percentage as it would stand in the file.
func (p Percent) String() string { return strconv.FormatFloat(float64(p)*100, 'g', -1, 64) + "%" }

func (Percent) kind() kind {
	return kind{
		Name:    "percentage",
		Doc:     "A number from 0 to 100 with a percent sign, as in 5%.",
		Pattern: `^[0-9]+(\.[0-9]+)?%$`,
		Hint:    "write a number from 0 to 100 with a percent sign, like 5%",
	}
}
