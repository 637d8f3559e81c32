"""Pods that an API server refuses, and some that it takes. Used offline, on the CRD and on the API of pods.

Each value is the ``spec`` of a pod template.
"""

from __future__ import annotations

from dtj.api.json import JsonObject

HTTP: JsonObject = {"httpGet": {"port": 80}}
VOLUME: JsonObject = {"name": "v", "emptyDir": {}}


def pod(container: JsonObject | None = None, **spec: object) -> JsonObject:
    """A pod with one container; ``container`` adds fields to it, ``spec`` to the pod."""
    whole: dict[str, object] = {"containers": [{"name": "trainer", "image": "x", **(container or {})}], **spec}
    return whole  # type: ignore[return-value]  # only JSON is given


def init(**fields: object) -> JsonObject:
    """A pod with an init container."""
    return pod(initContainers=[{"name": "first", "image": "x", **fields}])


def volume(**source: object) -> JsonObject:
    """A pod with one volume."""
    return pod(volumes=[{"name": "v", **source}])


def mount(**fields: object) -> JsonObject:
    """A pod that mounts its volume."""
    return pod({"volumeMounts": [{"name": "v", "mountPath": "/d", **fields}]}, volumes=[VOLUME])  # type: ignore[dict-item]


def env(**variable: object) -> JsonObject:
    """A pod with one variable."""
    return pod({"env": [{"name": "A", **variable}]})  # type: ignore[dict-item]


def port(**fields: object) -> JsonObject:
    """A pod with one port."""
    return pod({"ports": [{"containerPort": 80, **fields}]})  # type: ignore[dict-item]


def probe(**fields: object) -> JsonObject:
    """A pod with a liveness probe."""
    return pod({"livenessProbe": fields})  # type: ignore[dict-item]


def http_probe(**fields: object) -> JsonObject:
    """A pod with a liveness probe that asks for a page."""
    return probe(**HTTP, **fields)


def resources(limits: JsonObject | None = None, requests: JsonObject | None = None) -> JsonObject:
    """A pod with resources."""
    return pod({"resources": {"limits": limits or {}, "requests": requests or {}}})


def node_terms(*terms: object) -> JsonObject:
    """A pod with a node affinity."""
    required = {"nodeSelectorTerms": [*terms]}
    return pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})


def near(**term: object) -> JsonObject:
    """A pod with a pod affinity."""
    term = {"topologyKey": "zone", "labelSelector": {}, **term}
    return pod(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})


def spread(*constraints: object) -> JsonObject:
    """A pod with topology spread constraints."""
    return pod(topologySpreadConstraints=[*constraints])


SPREAD: JsonObject = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
FIELD: JsonObject = {"fieldRef": {"fieldPath": "metadata.name"}}

REFUSED_AT_APPLY: dict[str, JsonObject] = {
    "a misspelt field": pod(nodeSelektor={"disk": "ssd"}),
    "a field that is none": pod(gpus=4),
    "ephemeral containers": pod(ephemeralContainers=[{"name": "e", "image": "x"}]),
    "an argument that is a number": pod({"args": [1]}),
    "a flag that is text": pod({"tty": "yes"}),
    "a container that is null": pod(containers=[None]),
    "no container": pod(containers=[]),
    "a container without name": pod(containers=[{"image": "x"}]),
    "a container whose name is no DNS label": pod({"name": "Trainer_1"}),
    "a container whose name is too long": pod({"name": "a" * 64}),
    "two containers of one name": pod(containers=[{"name": "trainer", "image": "x"}] * 2),
    "a request that is no quantity": resources(requests={"cpu": "banana"}),
    "a memory in GB": resources(requests={"memory": "1GB"}),
    "a quantity that is a list": resources(limits={"cpu": [1]}),
    "a quantity that is an object": resources(limits={"cpu": {"cores": 1}}),
    "a negative limit as a number": resources(limits={"cpu": -1}),
    "a mount without a path": mount(mountPath=None),
    "two mounts at one path": pod({"volumeMounts": [{"name": "v", "mountPath": "/d"}] * 2}, volumes=[VOLUME]),
    "two volumes of one name": pod(volumes=[VOLUME, VOLUME]),
    "a volume of two kinds": volume(emptyDir={}, hostPath={"path": "/x"}),
    "a claim with an empty name": volume(persistentVolumeClaim={"claimName": ""}),
    "a mode in decimal digits": volume(configMap={"name": "x", "defaultMode": 1777}),
    "a negative size of a volume": volume(emptyDir={"sizeLimit": "-1Gi"}),
    "an ephemeral volume of nothing": volume(ephemeral={}),
    "two sources in one projection": volume(
        projected={"sources": [{"secret": {"name": "a"}, "configMap": {"name": "a"}}]}
    ),
    "a variable with an equals sign in its name": env(name="a=b"),
    "a variable that is a number": env(value=1),
    "a variable from two sources": env(valueFrom={**FIELD, "secretKeyRef": {"name": "a", "key": "b"}}),
    "a port that is too large": port(containerPort=65536),
    "a port that is text": port(containerPort="80"),
    "a name of a port that is a number": port(name="80"),
    "a restart policy that is none": pod(restartPolicy="Sometimes"),
    "a probe of a command that is missing": probe(exec={}),
    "a probe of a port that is a number in quotes": probe(httpGet={"port": "80"}),
    "a probe with a negative period": http_probe(periodSeconds=-1),
    "a hook without a handler": pod({"lifecycle": {"preStop": {}}}),
    "a node affinity without terms": node_terms(),
    "a weight of zero": pod(
        affinity={
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 0, "podAffinityTerm": {"topologyKey": "a", "labelSelector": {}}}
                ]
            }
        }
    ),
    "a skew of zero": spread({**SPREAD, "maxSkew": 0}),
    "two constraints of one topology": spread(SPREAD, SPREAD),
    "a negative user": pod({"securityContext": {"runAsUser": -1}}),
}
"""What the schema and the rules of the CRD refuse."""

REFUSED_AS_PODS: dict[str, JsonObject] = {
    "a mount without a volume": pod({"volumeMounts": [{"name": "d", "mountPath": "/d"}]}),
    "a variable with value and valueFrom": env(value="1", valueFrom=FIELD),
    "a sidecar without an image": pod(containers=[{"name": "trainer", "image": "x"}, {"name": "b"}]),
    "a request above the limit": resources(limits={"cpu": 1}, requests={"cpu": 2}),
    "fewer GPUs in the request than in the limit": resources({"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 1}),
    "a field of the pod that is none": env(valueFrom={"fieldRef": {"fieldPath": "metadata.nme"}}),
    "two ports of one name": pod({"ports": [{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}]}),
    "a path that leaves the volume": mount(subPath="../x"),
    "a probe with two handlers": http_probe(exec={"command": ["a"]}),
    "a node label with a space": pod(nodeSelector={"a b": "c"}),
    "a toleration without a key": pod(tolerations=[{"value": "x"}]),
    "a node affinity without values": node_terms({"matchExpressions": [{"key": "a", "operator": "In"}]}),
    "the processes of host and pod": pod(hostPID=True, shareProcessNamespace=True),
}
"""What the API of pods alone refuses: a dry run of the pods finds it."""

REFUSED_BY_US: dict[str, JsonObject] = {
    "more arguments than anybody has": pod({"args": ["a"] * 257}),
    "two variables of one name": pod({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
    "two ports of one number": pod({"ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]}),
    "a secret for images twice": pod(imagePullSecrets=[{"name": "a"}, {"name": "a"}]),
    "an exponent of a quantity that has no end": resources(requests={"cpu": "1e999999999"}),
    "a quantity of many digits": resources(requests={"cpu": "9" * 5000}),
}
"""What the API of pods takes with a warning, or computes for minutes; the CRD refuses it."""

TAKEN: dict[str, JsonObject] = {
    "variables with dots, spaces and digits": pod({"env": [{"name": n, "value": "1"} for n in ("a.b-c", "1a", "b c")]}),
    "variables from annotations and resources": pod(
        {
            "env": [
                {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['a/b']"}}},
                {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}}},
                {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "a.b", "key": "K_1", "optional": True}}},
            ]
        }
    ),
    "a volume of no kind": volume(),
    "a memory volume": volume(emptyDir={"medium": "Memory", "sizeLimit": "1.5Gi"}),
    "a probe by the name of a port": probe(httpGet={"port": "http"}, periodSeconds=0),
    "a sidecar": init(restartPolicy="Always", livenessProbe=HTTP),
    "equal memory in other words": resources({"memory": "1Gi"}, {"memory": "1024Mi"}),
    "a limit without a request": resources({"cpu": 0.5, "ephemeral-storage": "1e9"}),
    "a toleration of everything": pod(tolerations=[{"operator": "Exists"}]),
    "a node affinity": node_terms({"matchExpressions": [{"key": "a/b", "operator": "Gt", "values": ["1"]}]}),
    "a pod affinity": near(labelSelector={"matchExpressions": [{"key": "a", "operator": "Exists"}]}),
    "port names on two containers": pod(
        containers=[
            {"name": name, "image": "x", "ports": [{"containerPort": number, "name": "a"}]}
            for name, number in (("trainer", 80), ("b", 81))
        ]
    ),
    "the host's network": pod({"ports": [{"containerPort": 80, "hostPort": 80}]}, hostNetwork=True),
    "a negative grace period": pod(terminationGracePeriodSeconds=-1),
}
"""What the API of pods takes: it must be taken at apply and offline, too."""
