package telemetry

import (
	"context"

	"gobridge"
)

type storeKey struct {
	metric              string
	partition           gobridge.Partition
	operation, resource string
}

// maxStoreSeries bounds what a store can make of its names of operations and
// resources, which in part come from its service. What is beyond is counted under
// otherResource.
const (
	maxStoreSeries = 10_000
	otherResource  = "other"
)

// ObserveStore counts what a store tells of itself: one of its metrics in the
// list, by name. Others are ignored. It is safe for concurrent use.
func (o *Observer) ObserveStore(name string, partition gobridge.Partition, operation, resource string, value float64) {
	key := storeKey{name, partition, operation, resource}
	c, ok := o.stores.Load(key)
	if !ok {
		labels, listed := storeLabels(key)
		if !listed {
			return
		}
		if o.storeSeries.Load() >= maxStoreSeries {
			key = storeKey{metric: name, operation: otherResource, resource: otherResource}
			labels, _ = storeLabels(key)
		}
		var found bool
		if c, found = o.stores.LoadOrStore(key, o.count(name, labels...)); !found {
			o.storeSeries.Add(1)
		}
	}
	c.(count).add(context.Background(), value) //nolint:forcetypeassert // only those are stored
}

// storeLabels returns those labels that the metric has, and whether it is a store's.
// A lease or a registration that is no binding's has empty ones.
func storeLabels(key storeKey) (labels []string, listed bool) {
	values := map[string]string{labelOperation: key.operation, labelResource: key.resource}
	if route, binding, _, ok := key.partition.Split(); ok {
		values[labelRoute], values[labelBinding], values[labelPartition] = route, binding, string(key.partition)
	}
	for _, m := range ofStores() {
		if m.Name != key.metric {
			continue
		}
		listed = true
		for _, l := range m.Labels {
			labels = append(labels, l, values[l])
		}
	}
	return labels, listed
}
