package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"gobridge/config"
)

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// document reads YAML as a validator of JSON Schemas wants it.
func document(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := yaml.Load(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestExamplesAreValid(t *testing.T) {
	schema := compileSchema(t)
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := config.Parse(config.Input{Name: file, Data: text, Dir: "../examples", Env: environment})
		if err != nil || len(c.Warnings) > 0 {
			t.Errorf("%s: %v, warnings %v", file, err, c.Warnings)
		}
		if err := schema.Validate(document(t, text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	schema := compileSchema(t)
	if err := schema.Validate(document(t, []byte(small))); err != nil {
		t.Errorf("a good file: %v", err)
	}
	for _, tt := range bad {
		if !tt.schema {
			continue
		}
		if err := schema.Validate(document(t, []byte(tt.text))); err == nil {
			t.Errorf("%s: the schema takes it", tt.name)
		}
	}
}

func TestDocsAreCurrent(t *testing.T) {
	schema, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"../docs/configuration.md":          config.Markdown(),
		"../docs/configuration.schema.json": string(schema),
	} {
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the code says: run make docs", file)
		}
	}
}
