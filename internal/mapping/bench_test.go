package mapping_test

import (
	"testing"
)

func BenchmarkMapping(b *testing.B) {
	p := protocols["kafka"]
	e := envelopes["full"]
	e.Headers = map[string]string{"tenant": "acme", "x-region": "eu", "traceparent": traceparent}
	d := delivery(e)
	for _, f := range formats {
		m, err := p.Encode(d, f)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("encode/"+f.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Encode(d, f); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("decode/"+f.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Decode(m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
