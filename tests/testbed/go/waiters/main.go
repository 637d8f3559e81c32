// Program waiters shows what tools that wait for an object make of it. It reads objects of Kubernetes from standard
// input, one JSON object a line, and writes a line for each. Each command calls the library of the tool:
//
//	waiters kstatus                         helm --wait, Flux, kpt: status and message
//	waiters argocd SCRIPT                   Argo CD: status and message of a health script in Lua
//	waiters argo-workflows SUCCESS FAILURE  Argo Workflows: Succeeded, Failed or Running, by its two selectors
//	waiters katib SUCCESS FAILURE           Katib: the same by two GJSON expressions
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tidwall/gjson"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

const longestLine = 4 << 20

// A waiter says what an object, as JSON, is to a tool.
type waiter func(object []byte) (string, error)

func main() {
	tool, err := waiterOf(os.Args[1:])
	if err != nil {
		fail(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		said, err := tool(lines.Bytes())
		if err != nil {
			fail(err)
		}
		fmt.Println(strings.ReplaceAll(said, "\n", " "))
	}
	if err := lines.Err(); err != nil {
		fail(err)
	}
}

func waiterOf(arguments []string) (waiter, error) {
	switch {
	case len(arguments) == 1 && arguments[0] == "kstatus":
		return kstatus, nil
	case len(arguments) == 2 && arguments[0] == "argocd":
		return argocd(arguments[1])
	case len(arguments) == 3 && arguments[0] == "argo-workflows":
		return workflows(arguments[1], arguments[2])
	case len(arguments) == 3 && arguments[0] == "katib":
		return katib(arguments[1], arguments[2]), nil
	}
	return nil, errors.New("usage: waiters kstatus | argocd SCRIPT | argo-workflows SUCCESS FAILURE | katib SUCCESS FAILURE")
}

func kstatus(line []byte) (string, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(line); err != nil {
		return "", err
	}
	result, err := status.Compute(object)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s\t%s", result.Status, result.Message), nil
}

// argocd runs the script in gopher-lua with the object as the global obj, as Argo CD does (util/lua).
func argocd(path string) (waiter, error) {
	script, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return func(line []byte) (string, error) {
		var object any
		if err := json.Unmarshal(line, &object); err != nil {
			return "", err
		}
		state := lua.NewState(lua.Options{SkipOpenLibs: true})
		defer state.Close()
		for name, open := range map[string]lua.LGFunction{
			lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
		} {
			state.Push(state.NewFunction(open))
			state.Push(lua.LString(name))
			state.Call(1, 0)
		}
		state.SetGlobal("obj", asLua(state, object))
		if err := state.DoString(string(script)); err != nil {
			return "", err
		}
		health, ok := state.Get(-1).(*lua.LTable)
		if !ok {
			return "", errors.New("the script returned no table")
		}
		return fmt.Sprintf("%s\t%s", health.RawGetString("status"), health.RawGetString("message")), nil
	}, nil
}

func asLua(state *lua.LState, value any) lua.LValue {
	switch known := value.(type) {
	case bool:
		return lua.LBool(known)
	case float64:
		return lua.LNumber(known)
	case string:
		return lua.LString(known)
	case []any:
		table := state.NewTable()
		for _, item := range known {
			table.Append(asLua(state, item))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, item := range known {
			table.RawSetString(key, asLua(state, item))
		}
		return table
	}
	return lua.LNil
}

// fields are the fields of an object as labels, by GJSON paths (Argo Workflows, workflow/executor/resource.go).
type fields []byte

func (f fields) Has(path string) bool { return gjson.GetBytes(f, path).Exists() }

func (f fields) Get(path string) string { return gjson.GetBytes(f, path).String() }

func (f fields) Lookup(path string) (string, bool) { return f.Get(path), f.Has(path) }

func workflows(success, failure string) (waiter, error) {
	succeeded, err := requirements(success)
	if err != nil {
		return nil, err
	}
	failed, err := requirements(failure)
	if err != nil {
		return nil, err
	}
	return func(line []byte) (string, error) {
		for _, requirement := range failed {
			if requirement.Matches(fields(line)) {
				return "Failed", nil
			}
		}
		for _, requirement := range succeeded {
			if !requirement.Matches(fields(line)) {
				return "Running", nil
			}
		}
		return "Succeeded", nil
	}, nil
}

func requirements(condition string) (labels.Requirements, error) {
	selector, err := labels.Parse(condition)
	if err != nil {
		return nil, err
	}
	found, _ := selector.Requirements()
	return found, nil
}

// katib takes a condition for met if its expression finds something (Katib, pkg/controller.v1beta1/trial/util).
func katib(success, failure string) waiter {
	return func(line []byte) (string, error) {
		for _, condition := range []struct{ path, state string }{{failure, "Failed"}, {success, "Succeeded"}} {
			if found := gjson.GetBytes(line, condition.path).String(); found != "" && found != "[]" {
				return condition.state, nil
			}
		}
		return "Running", nil
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "waiters:", err)
	os.Exit(2)
}
