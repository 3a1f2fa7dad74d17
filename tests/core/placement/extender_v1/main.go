// What Go's types k8s.io/kube-scheduler/extender/v1 make of input.json: the requests that are sent, and what is read of
// answers. To record output.json anew, copy this folder to one with go.mod and go.sum of
// components/headgate/testing/control_plane/modules/kubernetes, and there: go run . input.json > output.json

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	ext "k8s.io/kube-scheduler/extender/v1"
)

type input struct {
	Pod     json.RawMessage   `json:"pod"`
	Nodes   []json.RawMessage `json:"nodes"`
	Victim  json.RawMessage   `json:"victim"`
	Answers []struct {
		Verb string `json:"verb"`
		Body string `json:"body"`
	} `json:"answers"`
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func raw(v any) json.RawMessage {
	out, err := json.Marshal(v)
	must(err)
	return out
}

func main() {
	var in input
	data, err := os.ReadFile(os.Args[1])
	must(err)
	must(json.Unmarshal(data, &in))
	var pod, victim v1.Pod
	must(json.Unmarshal(in.Pod, &pod))
	must(json.Unmarshal(in.Victim, &victim))
	list := &v1.NodeList{}
	names := []string{}
	for _, n := range in.Nodes {
		var node v1.Node
		must(json.Unmarshal(n, &node))
		list.Items = append(list.Items, node)
		names = append(names, node.Name)
	}
	out := map[string]any{"input": json.RawMessage(data)}
	out["argsByName"] = raw(ext.ExtenderArgs{Pod: &pod, NodeNames: &names})
	out["args"] = raw(ext.ExtenderArgs{Pod: &pod, Nodes: list})
	out["preemptionByName"] = raw(ext.ExtenderPreemptionArgs{Pod: &pod, NodeNameToMetaVictims: map[string]*ext.MetaVictims{
		names[0]: {Pods: []*ext.MetaPod{{UID: string(victim.UID)}}, NumPDBViolations: 1}}})
	out["preemption"] = raw(ext.ExtenderPreemptionArgs{Pod: &pod, NodeNameToVictims: map[string]*ext.Victims{
		names[0]: {Pods: []*v1.Pod{&victim}, NumPDBViolations: 1}}})
	out["binding"] = raw(ext.ExtenderBindingArgs{PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: names[0]})
	read := []map[string]any{}
	for _, a := range in.Answers {
		var into any
		switch a.Verb {
		case "filter":
			into = &ext.ExtenderFilterResult{}
		case "prioritize":
			into = &ext.HostPriorityList{}
		case "preempt":
			into = &ext.ExtenderPreemptionResult{}
		case "bind":
			into = &ext.ExtenderBindingResult{}
		default:
			panic(a.Verb)
		}
		err := json.NewDecoder(bytes.NewReader([]byte(a.Body))).Decode(into)
		entry := map[string]any{"verb": a.Verb, "body": a.Body}
		if err != nil {
			entry["error"] = err.Error()
		} else if f, ok := into.(*ext.ExtenderFilterResult); ok {
			var nodes []string
			if f.Nodes != nil {
				nodes = []string{}
				for _, n := range f.Nodes.Items {
					nodes = append(nodes, n.Name)
				}
			}
			entry["value"] = map[string]any{"nodes": nodes, "nodeNames": f.NodeNames, "failed": f.FailedNodes,
				"unresolvable": f.FailedAndUnresolvableNodes, "error": f.Error}
		} else {
			entry["value"] = into
		}
		read = append(read, entry)
	}
	delete(out, "input")
	out["read"] = read
	enc := json.NewEncoder(os.Stdout)
	enc.SetIndent("", " ")
	must(enc.Encode(out))
	fmt.Fprintln(os.Stderr, "ok")
}
