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


def http_probe(kind: str = "livenessProbe", **fields: object) -> JsonObject:
    """A pod with a probe that asks for a page."""
    return pod({kind: {**HTTP, **fields}})  # type: ignore[dict-item]


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
    "a misspelt field of a container": pod({"imagee": "x"}),
    "a field of a volume that is none": volume(secret={"secretName": "x", "name": "x"}),
    "an image that is a number": pod({"image": 5}),
    "an argument that is a number": pod({"args": [1]}),
    "a flag that is text": pod({"tty": "yes"}),
    "a node label that is no text": pod(nodeSelector={"a": True}),
    "a container that is null": pod(containers=[None]),
    "no container": pod(containers=[]),
    "a container without name": pod(containers=[{"image": "x"}]),
    "a container with an empty name": pod({"name": ""}),
    "a container whose name is no DNS label": pod({"name": "Trainer_1"}),
    "a container whose name is too long": pod({"name": "a" * 64}),
    "two containers of one name": pod(containers=[{"name": "trainer", "image": "x"}] * 2),
    "a request that is no quantity": resources(requests={"cpu": "banana"}),
    "a memory in GB": resources(requests={"memory": "1GB"}),
    "a negative request": resources(requests={"cpu": "-1"}),
    "a negative limit as a number": resources(limits={"cpu": -1}),
    "a mount without a path": mount(mountPath=None),
    "a mount with an empty path": mount(mountPath=""),
    "a mount without a name": mount(name=None),
    "two mounts at one path": pod({"volumeMounts": [{"name": "v", "mountPath": "/d"}] * 2}, volumes=[VOLUME]),
    "a mount propagation that is none": mount(mountPropagation="Both"),
    "two volumes of one name": pod(volumes=[VOLUME, VOLUME]),
    "a volume without a name": pod(volumes=[{"emptyDir": {}}]),
    "a volume whose name is no DNS label": pod(volumes=[{"name": "a_b", "emptyDir": {}}]),
    "a volume of two kinds": volume(emptyDir={}, hostPath={"path": "/x"}),
    "a path of the host that is missing": volume(hostPath={}),
    "a type of path that is none": volume(hostPath={"path": "/a", "type": "Dir"}),
    "a claim without a name": volume(persistentVolumeClaim={}),
    "a claim with an empty name": volume(persistentVolumeClaim={"claimName": ""}),
    "a ConfigMap without a name": volume(configMap={}),
    "a Secret without a name": volume(secret={}),
    "a mode in decimal digits": volume(configMap={"name": "x", "defaultMode": 1777}),
    "an item without a path": volume(configMap={"name": "x", "items": [{"key": "a"}]}),
    "a size of a volume in GB": volume(emptyDir={"sizeLimit": "1GB"}),
    "a negative size of a volume": volume(emptyDir={"sizeLimit": "-1Gi"}),
    "a driver that is missing": volume(csi={}),
    "an image volume without an image": volume(image={}),
    "an ephemeral volume of nothing": volume(ephemeral={}),
    "two sources in one projection": volume(
        projected={"sources": [{"secret": {"name": "a"}, "configMap": {"name": "a"}}]}
    ),
    "a variable without a name": pod({"env": [{"value": "1"}]}),
    "a variable with an empty name": env(name=""),
    "a variable with an equals sign in its name": env(name="a=b"),
    "a variable whose name is not ASCII": env(name="ä"),
    "a variable that is a number": env(value=1),
    "a variable that is true": env(value=True),
    "a variable from nothing": env(valueFrom={}),
    "a variable from two sources": env(valueFrom={**FIELD, "secretKeyRef": {"name": "a", "key": "b"}}),
    "a key of a Secret that is missing": env(valueFrom={"secretKeyRef": {"name": "a"}}),
    "a name of a Secret that is missing": env(valueFrom={"secretKeyRef": {"key": "a"}}),
    "a key of a Secret with a space": env(valueFrom={"secretKeyRef": {"name": "a", "key": "a b"}}),
    "variables of a ConfigMap without a name": pod({"envFrom": [{"configMapRef": {}}]}),
    "port zero": port(containerPort=0),
    "a port that is too large": port(containerPort=65536),
    "a port without a number": pod({"ports": [{"name": "a"}]}),
    "a port that is text": port(containerPort="80"),
    "a protocol that is none": port(protocol="http"),
    "a name of a port that is too long": port(name="averylongportname"),
    "a name of a port with a capital": port(name="Http"),
    "a name of a port that is a number": port(name="80"),
    "a host port that is too large": port(hostPort=70000),
    "an image pull policy that is none": pod({"imagePullPolicy": "Sometimes"}),
    "a restart policy that is none": pod(restartPolicy="Sometimes"),
    "a restart policy of an init container that is none": init(restartPolicy="Sometimes"),
    "a termination message policy that is none": pod({"terminationMessagePolicy": "Log"}),
    "a probe of a command that is missing": probe(exec={}),
    "a probe without a port": probe(httpGet={}),
    "a probe of port zero": probe(httpGet={"port": 0}),
    "a probe of a port with a bad name": probe(httpGet={"port": "a_b"}),
    "a probe of a port that is a number in quotes": probe(httpGet={"port": "80"}),
    "a probe of a scheme that is none": probe(httpGet={"port": 80, "scheme": "ftp"}),
    "a probe of a gRPC port zero": probe(grpc={"port": 0}),
    "a probe with a negative period": http_probe(periodSeconds=-1),
    "a probe with a negative delay": http_probe(initialDelaySeconds=-1),
    "a probe with a negative threshold": http_probe(failureThreshold=-1),
    "a probe that gives no time to end": http_probe(terminationGracePeriodSeconds=0),
    "a hook without a handler": pod({"lifecycle": {"preStop": {}}}),
    "a hook with two handlers": pod({"lifecycle": {"preStop": {"exec": {"command": ["a"]}, "sleep": {"seconds": 1}}}}),
    "a deadline of zero": pod(activeDeadlineSeconds=0),
    "a DNS policy that is none": pod(dnsPolicy="Host"),
    "an operating system that is none": pod(os={"name": "beos"}),
    "an operator of a toleration that is none": pod(tolerations=[{"key": "a", "operator": "In"}]),
    "an effect of a toleration that is none": pod(tolerations=[{"key": "a", "effect": "NoRun"}]),
    "a node affinity without terms": node_terms(),
    "an operator of a node affinity that is none": node_terms(
        {"matchExpressions": [{"key": "a", "operator": "Is", "values": ["x"]}]}
    ),
    "an operator of a pod affinity that is none": near(
        labelSelector={"matchExpressions": [{"key": "a", "operator": "Is", "values": ["x"]}]}
    ),
    "a weight of zero": pod(
        affinity={
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 0, "podAffinityTerm": {"topologyKey": "a", "labelSelector": {}}}
                ]
            }
        }
    ),
    "a pod affinity without a topology": near(topologyKey=None),
    "a pod affinity with an empty topology": near(topologyKey=""),
    "a skew of zero": spread({**SPREAD, "maxSkew": 0}),
    "a constraint that nothing satisfies in a way that is none": spread({**SPREAD, "whenUnsatisfiable": "Wait"}),
    "two constraints of one topology": spread(SPREAD, SPREAD),
    "a negative user": pod({"securityContext": {"runAsUser": -1}}),
    "a negative group of files": pod(securityContext={"fsGroup": -1}),
    "a seccomp profile that is none": pod({"securityContext": {"seccompProfile": {"type": "Some"}}}),
    "a policy for groups that is none": pod(securityContext={"fsGroupChangePolicy": "Never"}),
    "a resize policy that is none": pod({"resizePolicy": [{"resourceName": "gpu", "restartPolicy": "Maybe"}]}),
}
"""What the schema and the rules of the CRD refuse."""

REFUSED_AS_PODS: dict[str, JsonObject] = {
    "a container and an init container of one name": init(name="trainer"),
    "a mount without a volume": pod({"volumeMounts": [{"name": "d", "mountPath": "/d"}]}),
    "a mount of an init container without a volume": init(volumeMounts=[{"name": "d", "mountPath": "/d"}]),
    "a variable with value and valueFrom": env(value="1", valueFrom=FIELD),
    "a variable of an init container with value and valueFrom": init(
        env=[{"name": "A", "value": "1", "valueFrom": FIELD}]
    ),
    "a sidecar without an image": pod(containers=[{"name": "trainer", "image": "x"}, {"name": "b"}]),
    "an init container without an image": init(image=None),
    "an image with a space before it": pod({"image": " x"}),
    "a request above the limit": resources(limits={"cpu": 1}, requests={"cpu": 2}),
    "a request of memory above the limit": resources(limits={"memory": "1500Mi"}, requests={"memory": "2Gi"}),
    "a request of GPUs alone": resources(requests={"nvidia.com/gpu": 1}),
    "fewer GPUs in the request than in the limit": resources({"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 1}),
    "half a GPU": resources(limits={"nvidia.com/gpu": "0.5"}),
    "a resource that is none": resources(limits={"gpu": 1}),
    "a resource with a space in its name": resources(limits={"nvidia.com/g pu": 1}),
    "a quantity that is true": resources(limits={"cpu": True}),
    "a quantity that is a list": resources(limits={"cpu": [1]}),
    "a size of a volume that is a mapping": volume(emptyDir={"sizeLimit": {"storage": "1Gi"}}),
    "huge pages alone": resources(limits={"hugepages-2Mi": "4Mi"}),
    "fewer huge pages in the request than in the limit": resources(
        {"hugepages-2Mi": "4Mi", "cpu": 1}, {"hugepages-2Mi": "2Mi"}
    ),
    "a request of the pod above its limit": pod(resources={"requests": {"cpu": 2}, "limits": {"cpu": 1}}),
    "a field of the pod that is none": env(valueFrom={"fieldRef": {"fieldPath": "metadata.nme"}}),
    "a resource of the pod that is none": env(valueFrom={"resourceFieldRef": {"resource": "limits.gpu"}}),
    "a Secret's name with a space": env(valueFrom={"secretKeyRef": {"name": "A B", "key": "a"}}),
    "variables from nothing": pod({"envFrom": [{}]}),
    "variables from two sources": pod({"envFrom": [{"configMapRef": {"name": "a"}, "secretRef": {"name": "a"}}]}),
    "variables of a ConfigMap with a bad name": pod({"envFrom": [{"configMapRef": {"name": "A B"}}]}),
    "two ports of one name": pod({"ports": [{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}]}),
    "a host port on the host's network that is another": pod(
        {"ports": [{"containerPort": 80, "hostPort": 81}]}, hostNetwork=True
    ),
    "a path that leaves the volume": mount(subPath="../x"),
    "an absolute path below the volume": mount(subPath="/x"),
    "two paths below the volume": mount(subPath="x", subPathExpr="y"),
    "mounts that reach the host": mount(mountPropagation="Bidirectional"),
    "a path of the host that goes up": volume(hostPath={"path": "/a/../b"}),
    "an absolute path of an item": volume(configMap={"name": "x", "items": [{"key": "a", "path": "/x"}]}),
    "a relative path of a file server": volume(nfs={"server": "x", "path": "x"}),
    "a probe of an init container": init(livenessProbe=HTTP),
    "a hook of an init container": init(lifecycle={"preStop": {"exec": {"command": ["a"]}}}),
    "a probe without a handler": probe(periodSeconds=3),
    "a probe with two handlers": http_probe(exec={"command": ["a"]}),
    "a liveness probe that must succeed twice": http_probe(successThreshold=2),
    "a readiness probe with a grace period": http_probe("readinessProbe", terminationGracePeriodSeconds=5),
    "no DNS at all": pod(dnsPolicy="None"),
    "a node with a bad name": pod(nodeName="A_b"),
    "a node label with a space": pod(nodeSelector={"a b": "c"}),
    "a node label's value with a space": pod(nodeSelector={"a": "c d"}),
    "a toleration of all with a value": pod(tolerations=[{"key": "a", "operator": "Exists", "value": "x"}]),
    "a toleration without a key": pod(tolerations=[{"value": "x"}]),
    "a toleration for some time of what evicts nobody": pod(
        tolerations=[{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3}]
    ),
    "a toleration's key with a space": pod(tolerations=[{"key": "a b", "operator": "Exists"}]),
    "a toleration's value with a space": pod(tolerations=[{"key": "a", "value": "x y"}]),
    "a node affinity without values": node_terms({"matchExpressions": [{"key": "a", "operator": "In"}]}),
    "a node affinity with values too many": node_terms(
        {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}
    ),
    "a privileged container that may not escalate": pod(
        {"securityContext": {"privileged": True, "allowPrivilegeEscalation": False}}
    ),
    "a profile of the node that is missing": pod({"securityContext": {"seccompProfile": {"type": "Localhost"}}}),
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
    "a variable with an empty value and a source": env(value="", valueFrom=FIELD),
    "variables from annotations and resources": pod(
        {
            "env": [
                {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['a/b']"}}},
                {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}}},
                {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "a.b", "key": "K_1", "optional": True}}},
            ]
        }
    ),
    "a relative mount": mount(mountPath="d"),
    "a mount with a colon": mount(mountPath="/d:e"),
    "a path with two dots in a name": mount(subPath="a..b"),
    "a volume of no kind": volume(),
    "a memory volume": volume(emptyDir={"medium": "Memory", "sizeLimit": "1.5Gi"}),
    "a probe by the name of a port": probe(httpGet={"port": "http"}, periodSeconds=0),
    "a sidecar": init(restartPolicy="Always", livenessProbe=HTTP),
    "an init container that is not retried": init(restartPolicy="Never"),
    "equal GPUs": resources({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": "1"}),
    "equal memory in other words": resources({"memory": "1Gi"}, {"memory": "1024Mi"}),
    "a limit without a request": resources({"cpu": 0.5, "ephemeral-storage": "1e9"}),
    "a resource of the kubelet": resources({"kubernetes.io/x": 1}),
    "a toleration of everything": pod(tolerations=[{"operator": "Exists"}]),
    "a toleration for some time": pod(tolerations=[{"key": "a", "effect": "NoExecute", "tolerationSeconds": 3}]),
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
    "a node label without a value": pod(nodeSelector={"node-role.kubernetes.io/worker": ""}),
}
"""What the API of pods takes: it must be taken at apply and offline, too."""
