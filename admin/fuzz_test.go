package admin

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"gobridge/store/memory"
)

// FuzzBodies sends anything to everything that takes a body: it is done or refused
// with a reason, and nothing breaks.
func FuzzBodies(f *testing.F) {
	var paths []string
	for _, c := range good() {
		if c.method == "POST" {
			path, _, _ := strings.Cut(c.path, "?")
			f.Add(len(paths), c.body)
			paths = append(paths, path)
		}
	}
	f.Add(0, `{"target":"a/b/0of9999999999","reason":"r"}`)
	f.Add(0, `{"target":"`+"\xff"+`","reason":"r"}`)
	f.Add(0, `{"target":{"base64":"!"},"reason":"r"}`)
	api, err := openapi3.NewLoader().LoadFromData(description)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, i int, body string) {
		server, err := New(optionsOf(memory.New(memory.Options{})))
		if err != nil {
			t.Fatal(err)
		}
		path := paths[uint(i)%uint(len(paths))]
		r := httptest.NewRequest(http.MethodPost, apiPrefix+path+map[bool]string{true: "?reason=r"}[path == "/dead/import"], strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+operateToken)
		out := httptest.NewRecorder()
		server.server.Handler.ServeHTTP(out, r)
		if !slices.Contains([]int{200, 400, 404, 409, 413, 422, 501, 503}, out.Code) {
			t.Errorf("%s: %d %s", path, out.Code, out.Body)
		}
		a := answer{out.Code, out.Header(), out.Body.String()}
		(&world{T: t, api: api}).described("POST", apiPrefix+path, &a)
	})
}
