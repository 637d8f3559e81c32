"""A webhook that injects sidecars into pods, as service meshes do."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from pathlib import Path

from dtj.api.json import JsonObject, dig, text
from loopback import JsonHandler, serving
from testbed import Cluster
from testbed.pki import Authority

LABEL = "inject"
"""The label of a pod that names the sidecar it gets."""

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@contextmanager
def injecting(cluster: Cluster, namespace: str, sidecars: dict[str, JsonObject], directory: Path) -> Iterator[None]:
    """Put before all containers of the namespace's pods the sidecar that their label names.

    One with ``restartPolicy: Always`` becomes a native sidecar.
    """
    authority = Authority(directory)
    pair = authority.issue("injector", hosts=("127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = HTTPServer(("127.0.0.1", 0), _handler(sidecars))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    hook: JsonObject = {
        "name": "injector.example.com",
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_address[1]}/",
            "caBundle": authority.bundle,
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "objectSelector": {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    with serving(server):
        cluster.api.request("POST", CONFIGURATIONS, {"metadata": {"name": namespace}, "webhooks": [hook]})
        try:
            yield
        finally:
            cluster.api.request("DELETE", f"{CONFIGURATIONS}/{namespace}")


def _handler(sidecars: dict[str, JsonObject]) -> type[JsonHandler]:
    class Handler(JsonHandler):
        def do_POST(self) -> None:  # the library's name
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            pod = review["request"]["object"]
            sidecar = sidecars[text(dig(pod, "metadata", "labels", LABEL))]
            native = sidecar.get("restartPolicy") == "Always"
            there = "initContainers" in pod["spec"]
            path, value = ("/spec/initContainers", [sidecar]) if native else ("/spec/containers/0", sidecar)
            change = {"op": "add", "path": f"{path}/0" if native and there else path}
            patch = json.dumps([{**change, "value": sidecar if native and there else value}]).encode()
            reply = {
                "uid": review["request"]["uid"],
                "allowed": True,
                "patchType": "JSONPatch",
                "patch": base64.b64encode(patch).decode(),
            }
            answer = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": reply}
            self.reply(json.dumps(answer).encode())

    return Handler
