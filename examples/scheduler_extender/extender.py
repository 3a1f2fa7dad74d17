"""A scheduler extender: no pods on nodes that are announced for maintenance, and rather on those with a local disk."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAINTENANCE, DISK = "example.com/maintenance", "example.com/local-disk"


def filter_nodes(nodes):
    """Which nodes may take the pod, and why the others may not."""
    announced = {each["metadata"]["name"]: each["metadata"].get("annotations", {}).get(MAINTENANCE) for each in nodes}
    left = [each for each in nodes if not announced[each["metadata"]["name"]]]
    failed = {name: f"maintenance {at}" for name, at in announced.items() if at}
    return {"Nodes": {"items": left}, "FailedNodes": failed}


def prioritize_nodes(nodes):
    """How good each node is, from 0 to 10."""
    metadata = [each["metadata"] for each in nodes]
    return [{"Host": each["name"], "Score": 10 if DISK in each.get("labels", {}) else 0} for each in metadata]


class Extender(BaseHTTPRequestHandler):
    """Answers POST /filter and POST /prioritize."""

    protocol_version = "HTTP/1.1"  # keeps connections
    verbs = {"/filter": filter_nodes, "/prioritize": prioritize_nodes}

    def do_POST(self):
        """One call: `ExtenderArgs` with whole nodes, as without `nodeCacheCapable`."""
        args = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        verb = self.verbs[self.path]
        answer = json.dumps(verb(args["Nodes"]["items"])).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


if __name__ == "__main__":
    ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Extender).serve_forever()
