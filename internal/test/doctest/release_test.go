package doctest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// read returns the text of a file by its path from the repository's root.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// readYAML decodes a file of which to is a part: other fields are for others to read.
func readYAML(t *testing.T, path string, to any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, path)), to); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// glob returns the paths from the root of the files that a pattern matches.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v, %v", pattern, paths, err)
	}
	for i := range paths {
		paths[i] = strings.TrimPrefix(filepath.ToSlash(paths[i]), root+"/")
	}
	return paths
}

// TestReleaseRefuses: scripts/release says what is wrong with its arguments and exits with 2, before it does anything.
func TestReleaseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"too many arguments":    {[]string{"v0.1.0", "a", "b"}, "too many arguments"},
		"no version":            {[]string{"latest"}, "latest is no version"},
		"a version without v":   {[]string{"0.1.0"}, "0.1.0 is no version"},
		"an option":             {[]string{"--help"}, "--help is no version"},
		"not in the changelog":  {[]string{"v99.0.0"}, "CHANGELOG.md has no entry ## [99.0.0]"},
		"a directory with more": {[]string{"v0.1.0", "scripts"}, "is not an empty directory"},
		"a file":                {[]string{"v0.1.0", "go.mod"}, "is not an empty directory"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "scripts/release", c.args...)
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			exit, _ := errors.AsType[*exec.ExitError](err)
			if exit == nil || exit.ExitCode() != 2 {
				t.Errorf("%v, want exit code 2", err)
			}
			if got := string(out); !strings.Contains(got, c.says) || !strings.Contains(got, "Usage: scripts/release [VERSION [DIRECTORY]]") {
				t.Errorf("it says %q, want %q and the usage", got, c.says)
			}
		})
	}
}

// TestDependabotKnowsAll: dependency updates cover each Go module and each Dockerfile.
func TestDependabotKnowsAll(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "modules")).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"github-actions": {"/"}}
	for module := range strings.FieldsSeq(string(out)) {
		want["gomod"] = append(want["gomod"], "/"+strings.TrimPrefix(strings.TrimPrefix(module, "."), "/"))
	}
	err = filepath.WalkDir(filepath.Join(root, "deploy"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Base(path) == "Dockerfile" {
			want["docker"] = append(want["docker"], strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Updates []struct {
			Ecosystem   string   `yaml:"package-ecosystem"`
			Directory   string   `yaml:"directory"`
			Directories []string `yaml:"directories"`
		} `yaml:"updates"`
	}
	readYAML(t, ".github/dependabot.yml", &file)
	for _, u := range file.Updates {
		got := u.Directories
		if u.Directory != "" {
			got = append(got, u.Directory)
		}
		slices.Sort(got)
		slices.Sort(want[u.Ecosystem])
		if !slices.Equal(got, want[u.Ecosystem]) {
			t.Errorf("%s has %q, want %q", u.Ecosystem, got, want[u.Ecosystem])
		}
		delete(want, u.Ecosystem)
	}
	if len(want) > 0 {
		t.Errorf(".github/dependabot.yml lacks %v", want)
	}
}

// TestWorkflows: actions are pinned by a version, programs that a workflow runs exist, and Go has
// the version of go.mod there and in the images.
func TestWorkflows(t *testing.T) {
	pinned := regexp.MustCompile(`^actions/[a-z-]+@v\d+$`)
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))[1]
	if !strings.Contains(read(t, "deploy/Dockerfile"), "\nARG GO_VERSION="+version+"\n") {
		t.Errorf("deploy/Dockerfile does not build with Go %s", version)
	}
	for _, path := range glob(t, ".github/workflows/*.yml") {
		var file struct {
			On          map[string]any    `yaml:"on"`
			Permissions map[string]string `yaml:"permissions"`
			Jobs        map[string]struct {
				Timeout   int `yaml:"timeout-minutes"`
				Container struct {
					Image string `yaml:"image"`
				} `yaml:"container"`
				Steps []struct {
					Uses string            `yaml:"uses"`
					With map[string]string `yaml:"with"`
					Run  string            `yaml:"run"`
				} `yaml:"steps"`
			} `yaml:"jobs"`
		}
		readYAML(t, path, &file)
		if len(file.On) == 0 || len(file.Permissions) == 0 || len(file.Jobs) == 0 {
			t.Errorf("%s: on %v, permissions %v, %d jobs", path, file.On, file.Permissions, len(file.Jobs))
		}
		for name, job := range file.Jobs {
			if job.Timeout == 0 {
				t.Errorf("%s: job %s has no timeout-minutes", path, name)
			}
			if image := job.Container.Image; image != "" && !strings.HasPrefix(image, "golang:"+version+"-") {
				t.Errorf("%s: job %s runs in %s, want Go %s", path, name, image, version)
			}
			for _, step := range job.Steps {
				if step.Uses != "" && !pinned.MatchString(step.Uses) {
					t.Errorf("%s uses %s, want a version of an action of the code host's", path, step.Uses)
				}
				if v, ok := step.With["go-version"]; ok && v != version {
					t.Errorf("%s sets Go %s up, want %s", path, v, version)
				}
				if program, _, _ := strings.Cut(step.Run, " "); strings.Contains(program, "/") {
					read(t, program)
				}
			}
		}
	}
	tools := read(t, "tools/go.mod")
	for _, tool := range []string{"cyclonedx-gomod", "govulncheck"} {
		if !strings.Contains(tools, "/cmd/"+tool+"\n") {
			t.Errorf("tools/go.mod lacks %s", tool)
		}
	}
}

// TestIssueForms: each form has what the code host asks of it.
func TestIssueForms(t *testing.T) {
	for _, path := range glob(t, ".github/ISSUE_TEMPLATE/*.yml") {
		var file struct {
			Name        string `yaml:"name"`
			Description string `yaml:"description"`
			Links       []struct {
				URL string `yaml:"url"`
			} `yaml:"contact_links"`
			Body []struct {
				Type       string `yaml:"type"`
				ID         string `yaml:"id"`
				Attributes struct {
					Label   string   `yaml:"label"`
					Value   string   `yaml:"value"`
					Options []string `yaml:"options"`
				} `yaml:"attributes"`
			} `yaml:"body"`
		}
		readYAML(t, path, &file)
		if filepath.Base(path) == "config.yml" {
			if len(file.Links) != 1 || !strings.Contains(read(t, "SECURITY.md"), file.Links[0].URL) {
				t.Errorf("%s: %+v, want the address of SECURITY.md", path, file.Links)
			}
			continue
		}
		if file.Name == "" || file.Description == "" || len(file.Body) == 0 {
			t.Errorf("%s: name %q, description %q, %d fields", path, file.Name, file.Description, len(file.Body))
		}
		ids := make(map[string]bool)
		for _, field := range file.Body {
			switch a := field.Attributes; {
			case field.Type == "markdown" && a.Value != "":
			case field.Type == "dropdown" && len(a.Options) < 2:
				t.Errorf("%s: %s has %q", path, field.ID, a.Options)
			case !slices.Contains([]string{"input", "textarea", "dropdown"}, field.Type) || a.Label == "" || field.ID == "" || ids[field.ID]:
				t.Errorf("%s: field %+v", path, field)
			}
			ids[field.ID] = true
		}
	}
}
