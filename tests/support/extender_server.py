"""
An HTTPS extender as a process of its own, which behaves as a file tells it: for whole cells under test.

It lets `n1` and `n2` pass, prefers `n2`, and binds through the API server. Each call is a line of `calls`. The file
`mode` says what happens to calls of a verb (`filter 500`): `500`; `cut`, the connection is closed without an answer;
`late`, the answer comes when the file says something else. The call has been acted on in each case.

    python extender_server.py FOLDER API_SERVER
"""

import json
import ssl
import sys
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
SCORES = {"n1": 1, "n2": 9}


def mode(verb: str) -> str:
    """What is to happen to calls of a verb."""
    of_verb, _, what = (FOLDER / "mode").read_text().partition(" ")
    return what if of_verb == verb else ""


def filtered(args: Any) -> Any:
    names = args["NodeNames"]
    return {
        "NodeNames": [name for name in names if name in SCORES],
        "FailedNodes": {name: "no licence" for name in names if name not in SCORES},
    }


def prioritized(args: Any) -> Any:
    return [{"Host": name, "Score": SCORES[name]} for name in args["NodeNames"]]


def bound(args: Any) -> Any:
    """Bind the pod as an extender does: what the API server says is the answer."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": args["PodName"], "namespace": args["PodNamespace"], "uid": args["PodUID"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": args["Node"]},
    }
    url = f"{sys.argv[2]}/api/v1/namespaces/{args['PodNamespace']}/pods/{args['PodName']}/binding"
    headers = {"Content-Type": "application/json"}
    try:
        urllib.request.urlopen(urllib.request.Request(url, json.dumps(binding).encode(), headers)).close()
    except urllib.error.HTTPError as error:
        return {"Error": json.load(error)["message"]}
    return {"Error": ""}


class Extender(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    verbs = {"filter": filtered, "prioritize": prioritized, "bind": bound}

    def do_POST(self) -> None:
        args = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        verb = self.path.rpartition("/")[2]
        answer = json.dumps(self.verbs[verb](args)).encode()
        pod = args["PodName"] if verb == "bind" else args["Pod"]["metadata"]["name"]
        with (FOLDER / "calls").open("a") as calls:
            calls.write(f"{verb} {pod}\n")
        while mode(verb) == "late":
            time.sleep(0.01)
        if mode(verb) == "cut":
            self.close_connection = True
            return
        self.send_response(500 if mode(verb) == "500" else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Nothing: standard error is the test's."""


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Nothing: who called may have been killed."""


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Extender)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FOLDER / "server.crt", FOLDER / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    (FOLDER / "port").write_text(str(server.server_port))
    server.serve_forever()
