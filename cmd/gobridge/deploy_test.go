package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// parses checks that a command line is one of gobridge's.
func parses(t *testing.T, args []string) {
	t.Helper()
	cmd, rest, err := newRoot(&bytes.Buffer{}, &bytes.Buffer{}).Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil || !cmd.Runnable() {
		t.Errorf("gobridge %s: %v", strings.Join(args, " "), err)
	}
}

// TestServiceIsHardened: the unit starts what there is, gives it time to stop, and
// keeps the restrictions that `systemd-analyze security` asks for.
func TestServiceIsHardened(t *testing.T) {
	unit := map[string][]string{}
	for line := range strings.SplitSeq(read(t, "../../ops/systemd/gobridge.service"), "\n") {
		if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			unit[key] = append(unit[key], value)
		}
	}
	command := strings.Fields(unit["ExecStart"][0])
	if command[0] != "/usr/local/bin/gobridge" {
		t.Errorf("it starts %s", command[0])
	}
	parses(t, command[1:])
	for key, want := range map[string]string{
		"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes",
		"PrivateDevices": "yes", "PrivateUsers": "yes", "MemoryDenyWriteExecute": "yes", "RestrictNamespaces": "yes", "LockPersonality": "yes",
		"RestrictSUIDSGID": "yes", "CapabilityBoundingSet": "", "StateDirectory": "gobridge", "WorkingDirectory": "/var/lib/gobridge",
		"Restart": "always", "TimeoutStopSec": "30s", "SystemCallArchitectures": "native",
	} {
		if got := unit[key]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

// TestImageHasTheBinaryAndNothingElse: what is copied into the build is there, and the
// image is from scratch, as a user that is not root, with a command that there is.
func TestImageHasTheBinaryAndNothingElse(t *testing.T) {
	var stages [][][]string // instructions, as their words, by stage
	for line := range strings.SplitSeq(read(t, "../../ops/Dockerfile"), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if words[0] == "FROM" {
			stages = append(stages, nil)
		}
		stages[len(stages)-1] = append(stages[len(stages)-1], words)
	}
	if len(stages) != 2 {
		t.Fatalf("it has %d stages", len(stages))
	}
	for _, words := range stages[0] {
		if words[0] == "COPY" {
			for _, file := range words[1 : len(words)-1] {
				if _, err := os.Stat(filepath.Join("../..", file)); err != nil {
					t.Error(err)
				}
			}
		}
	}
	image := map[string][]string{}
	var copied []string
	for _, words := range stages[1] {
		image[words[0]] = words[1:]
		if words[0] == "COPY" {
			copied = append(copied, words[len(words)-1])
		}
	}
	slices.Sort(copied)
	if want := []string{"/etc/ssl/certs/ca-certificates.crt", "/tmp", "/usr/local/bin/gobridge", "/var/lib/gobridge"}; !slices.Equal(copied, want) {
		t.Errorf("the image has %v, want %v", copied, want)
	}
	if image["FROM"][0] != "scratch" || image["USER"][0] != "65532:65532" || image["WORKDIR"][0] != "/var/lib/gobridge" {
		t.Errorf("it is %v", image)
	}
	var entry, args []string
	if err := yaml.Unmarshal([]byte(strings.Join(image["ENTRYPOINT"], " ")), &entry); err != nil || !slices.Equal(entry, []string{"/usr/local/bin/gobridge"}) {
		t.Errorf("it starts %v: %v", entry, err)
	}
	if err := yaml.Unmarshal([]byte(strings.Join(image["CMD"], " ")), &args); err != nil {
		t.Fatal(err)
	}
	parses(t, args)
}

// object is an object of Kubernetes, as far as it is looked at.
type object struct {
	Kind     string            `yaml:"kind"`
	Data     map[string]string `yaml:"data"`
	Metadata struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	Spec struct {
		Replicas int `yaml:"replicas"`
		Template struct {
			Spec struct {
				Grace      int            `yaml:"terminationGracePeriodSeconds"`
				Automount  *bool          `yaml:"automountServiceAccountToken"`
				Security   map[string]any `yaml:"securityContext"`
				Containers []container    `yaml:"containers"`
				Volumes    []named        `yaml:"volumes"`
			} `yaml:"spec"`
		} `yaml:"template"`
		Claims []struct {
			Metadata named `yaml:"metadata"`
		} `yaml:"volumeClaimTemplates"`
	} `yaml:"spec"`
}

type named struct {
	Name string `yaml:"name"`
}

type container struct {
	Args     []string       `yaml:"args"`
	Dir      string         `yaml:"workingDir"`
	Security map[string]any `yaml:"securityContext"`
	Ready    probe          `yaml:"readinessProbe"`
	Live     probe          `yaml:"livenessProbe"`
	Startup  probe          `yaml:"startupProbe"`
	Limits   struct {
		Limits map[string]string `yaml:"limits"`
	} `yaml:"resources"`
	Mounts []struct {
		Name string `yaml:"name"`
		Path string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
	Ports []named `yaml:"ports"`
}

type probe struct {
	Get struct {
		Path string `yaml:"path"`
		Port string `yaml:"port"`
	} `yaml:"httpGet"`
}

func objects(t *testing.T) map[string]object {
	t.Helper()
	out := map[string]object{}
	decoder := yaml.NewDecoder(strings.NewReader(read(t, "../../ops/kubernetes/gobridge.yaml")))
	for {
		var o object
		if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out[o.Kind] = o
	}
}

// TestPodIsRestricted: the pod runs what there is, as nobody, on a root that it can't
// write to, is asked on paths that answer, and keeps its outbox in the volume.
func TestPodIsRestricted(t *testing.T) {
	set := objects(t)["StatefulSet"]
	pod := set.Spec.Template.Spec
	c := pod.Containers[0]
	parses(t, c.Args)
	if set.Spec.Replicas != 1 {
		t.Errorf("%d replicas of an outbox in a file", set.Spec.Replicas)
	}
	if pod.Security["runAsNonRoot"] != true || pod.Automount == nil || *pod.Automount || pod.Grace <= 10 ||
		c.Security["readOnlyRootFilesystem"] != true || c.Security["allowPrivilegeEscalation"] != false || c.Limits.Limits["memory"] == "" {
		t.Errorf("%+v", pod)
	}
	for _, p := range []struct {
		probe
		path string
	}{{c.Ready, "/health/ready"}, {c.Live, "/health/live"}, {c.Startup, "/health/live"}} {
		if p.Get.Path != p.path || !slices.Contains(c.Ports, named{p.Get.Port}) {
			t.Errorf("probe %+v, want %s", p.probe, p.path)
		}
	}
	volumes := append(slices.Clone(pod.Volumes), set.Spec.Claims[0].Metadata)
	for _, m := range c.Mounts {
		if !slices.Contains(volumes, named{m.Name}) {
			t.Errorf("there is no volume %s", m.Name)
		}
		if m.Name == set.Spec.Claims[0].Metadata.Name && m.Path != c.Dir {
			t.Errorf("the outbox is in %s, and the process starts in %s", m.Path, c.Dir)
		}
	}
}

// TestPodConfigurationIsValid validates the configuration of the pod, with secrets as
// the page says to make them.
func TestPodConfigurationIsValid(t *testing.T) {
	dir := t.TempDir()
	for name, token := range map[string]string{"read": "0123456789abcdef", "operate": "fedcba9876543210"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.ReplaceAll(objects(t)["ConfigMap"].Data["gobridge.yaml"], "/etc/gobridge-secrets", dir)
	if status, _, stderr := command(t, "validate", write(t, text)); status != 0 {
		t.Errorf("validate: %s", stderr)
	}
}

func TestDeployPageHasRealCommands(t *testing.T) {
	text := read(t, "../../docs/deploy.md")
	_, rest, _ := strings.Cut(text, "```sh\n")
	lines, _, found := strings.Cut(rest, "\n```")
	if !found {
		t.Fatal("it has no commands")
	}
	for line := range strings.SplitSeq(lines, "\n") {
		parses(t, words(line)[1:])
	}
}
