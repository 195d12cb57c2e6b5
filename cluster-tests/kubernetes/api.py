"""Answers what helm asks of a Kubernetes API server before it renders a chart for it: which kinds there are, and the objects of a JSON file.

Prints its port. Nothing can be changed through it. Ends with its standard input.
"""

import http.server
import json
import sys
import threading

KINDS = {
    "v1": ["ConfigMap", "Secret", "Service", "ServiceAccount"],
    "apps/v1": ["StatefulSet"],
    "policy/v1": ["PodDisruptionBudget"],
    "networking.k8s.io/v1": ["NetworkPolicy"],
}


def plural(kind):
    kind = kind.lower()
    return kind[:-1] + "ies" if kind.endswith("y") else kind + "s"


def path_of(version):
    return "/apis/" + version if "/" in version else "/api/" + version


def pages(things):
    groups = [version for version in KINDS if "/" in version]
    yield "/version", {"major": "1", "minor": "37", "gitVersion": "v1.37.0"}
    yield "/api", {"kind": "APIVersions", "versions": ["v1"]}
    of_group = lambda version: {"groupVersion": version, "version": version.split("/")[1]}
    group = lambda version: {"name": version.split("/")[0], "versions": [of_group(version)], "preferredVersion": of_group(version)}
    yield "/apis", {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(version) for version in groups]}
    for version, kinds in KINDS.items():
        resource = lambda kind: {"name": plural(kind), "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get", "list"]}
        listed = [resource(kind) for kind in kinds]
        yield path_of(version), {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": listed}
    for thing in things:
        meta = thing["metadata"]
        place = f"/namespaces/{meta['namespace']}/{plural(thing['kind'])}/{meta['name']}"
        yield path_of(thing["apiVersion"]) + place, thing


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        found = self.server.pages.get(self.path.split("?")[0])
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        body = json.dumps(found or missing).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


with open(sys.argv[1]) as file:
    objects = json.load(file)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.pages = dict(pages(objects))
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
