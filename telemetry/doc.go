// Package telemetry turns what the bridge and the stores tell their observers into
// OpenTelemetry metrics and traces.
//
// [Metrics] is the one list of what is measured: instruments, Prometheus names, the
// page of the documentation and the checks of dashboards and alerts come from it.
// Labels are bounded: routes, bindings and partitions are those of the
// configuration, and everything else is of a fixed set. No message's ID, key or text
// is ever one.
package telemetry
