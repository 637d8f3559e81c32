"""Manifests that break a rule, each under a sentence that says which. Used offline and on a real API server."""

from __future__ import annotations

from builders import CLAIM_TEMPLATE, manifest
from dtj.api.json import JsonObject


def _containers(*names: str, **fields: object) -> dict[str, object]:
    return {"spec": {"containers": [{"name": name, "image": "x", **fields} for name in names]}}


def _env(name: str) -> list[dict[str, str]]:
    return [{"name": name, "value": "1"}]


def _claim(**fields: object) -> dict[str, object]:
    return {"claimTemplate": {"spec": {"resources": {"requests": {"storage": "1Gi"}}, **fields}}}


def _mounted(kind: str, path: str) -> dict[str, object]:
    mounts = {"volumeMounts": [{"name": "v", "mountPath": path}]}
    containers = {"containers": [{"name": "a", "image": "x"}]}
    return {"spec": {"volumes": [{"name": "v"}], **containers, kind: [{"name": "b", "image": "x", **mounts}]}}


def _roles(**roles: object) -> dict[str, object]:
    return roles


RULE_BREAKERS: dict[str, JsonObject] = {
    "the name has a dot": manifest("digits.v2"),
    "the name begins with a digit": manifest("1digits"),
    "the name is too long for its workers": manifest("d" * 47),
    "the name is too long for its chief": manifest("d" * 51, roles={"chief": 1}),
    "a role that is none": manifest(roles={"worker": 1, "master": 1}),
    "a controller's name that is none": manifest(managedBy="another operator"),
    "a controller's name without a path": manifest(managedBy="example.com"),
    "a controller in the field of older versions": manifest(runPolicy={"managedBy": "example.com/other"}),
    "ParameterServer that skips a loss which is not finite": manifest(
        strategy="ParameterServer", roles={"chief": 1, "worker": 1, "ps": 1}, runPolicy={"onNaN": "Skip"}
    ),
    "a null role": manifest(replicaSpecs=_roles(worker={"replicas": 1}, chief=None)),
    "no role at all": manifest(replicaSpecs=_roles()),
    "no replica at all": manifest(roles={"worker": 0}),
    "nothing but an evaluator": manifest(roles={"evaluator": 1}),
    "two chiefs": manifest(roles={"chief": 2}),
    "two evaluators": manifest(roles={"worker": 1, "evaluator": 2}),
    "two dispatchers": manifest(roles={"worker": 1, "dispatcher": 2, "data-worker": 1}),
    "a dispatcher without data workers": manifest(roles={"worker": 1, "dispatcher": 1, "data-worker": 0}),
    "data workers without a dispatcher": manifest(roles={"worker": 1, "data-worker": 2}),
    "the name is too long for its data workers": manifest(
        "d" * 42, roles={"worker": 1, "dispatcher": 1, "data-worker": 1}
    ),
    "OneDevice with two workers": manifest(strategy="OneDevice", roles={"worker": 2}),
    "Mirrored with chief and worker": manifest(strategy="Mirrored", roles={"chief": 1, "worker": 1}),
    "CentralStorage with three workers": manifest(strategy="CentralStorage", roles={"worker": 3}),
    "ps without ParameterServer": manifest(roles={"worker": 1, "ps": 1}),
    "ParameterServer without ps": manifest(strategy="ParameterServer", roles={"chief": 1, "worker": 1}),
    "ParameterServer without worker": manifest(strategy="ParameterServer", roles={"chief": 1, "ps": 1}),
    "Pipeline with one stage": manifest(strategy="Pipeline", roles={"worker": 1}),
    "TPU without accelerator": manifest(strategy="TPU"),
    "TPU without topology": manifest(strategy="TPU", accelerator={"profile": "tpu-v5e"}),
    "TPU without topology where it trains": manifest(
        strategy="TPU",
        replicaSpecs=_roles(worker={}, evaluator={"accelerator": {"profile": "tpu-v5e", "topology": "1x1"}}),
    ),
    "TPU with a topology that the worker's own accelerator hides": manifest(
        strategy="TPU",
        replicaSpecs=_roles(worker={"accelerator": {"profile": "tpu-v5e"}}),
        accelerator={"profile": "tpu-v5e", "topology": "2x2"},
    ),
    "a topology that is none": manifest(accelerator={"profile": "tpu-v5e", "topology": "2by4"}),
    "a role's topology that is none": manifest(
        replicaSpecs=_roles(worker={"accelerator": {"profile": "tpu-v5e", "topology": "8"}})
    ),
    "elastic with a strategy that keeps its number of workers": manifest(
        strategy="Mirrored", roles={"worker": 1}, elastic={"maxReplicas": 2}
    ),
    "communication of a strategy without gradients of several GPUs": manifest(
        strategy="OneDevice", roles={"worker": 1}, communication="NCCL"
    ),
    "elastic with its bounds exchanged": manifest(elastic={"minReplicas": 3, "maxReplicas": 2}),
    "fewer workers than elastic allows": manifest(elastic={"minReplicas": 3, "maxReplicas": 4}),
    "more workers than elastic allows": manifest(roles={"worker": 3}, elastic={"maxReplicas": 2}),
    "elastic without workers": manifest(roles={"chief": 1}, elastic={"maxReplicas": 2}),
    "spares of servers' workers": manifest(
        strategy="ParameterServer", roles={"chief": 1, "worker": 1, "ps": 1}, elastic={"maxReplicas": 2, "spares": 1}
    ),
    "spares in a gang": manifest(elastic={"maxReplicas": 2, "spares": 1}, runPolicy={"scheduling": {"gang": "Auto"}}),
    "spares where all restart": manifest(elastic={"maxReplicas": 2, "spares": 1}, runPolicy={"restartScope": "Job"}),
    "spares of a TPU slice": manifest(
        elastic={"maxReplicas": 2, "spares": 1}, accelerator={"profile": "tpu-v5e", "topology": "1x1"}
    ),
    "spares of a role in a TPU slice": manifest(
        elastic={"maxReplicas": 2, "spares": 1},
        replicaSpecs=_roles(worker={"accelerator": {"profile": "tpu-v5e", "topology": "1x1"}}),
    ),
    "stragglers that nobody can replace": manifest(elastic={"maxReplicas": 2, "onStraggler": "Replace"}),
    "an exit code that is retryable and fatal": manifest(runPolicy={"exitCodes": {"retryable": [3, 4], "fatal": [4]}}),
    "a queue with a gang that has none": manifest(runPolicy={"scheduling": {"gang": "Native", "queue": "team-a"}}),
    "more pods available than there are": manifest(runPolicy={"scheduling": {"minAvailable": 3}}),
    "something to do on a stall that never is": manifest(runPolicy={"onStall": "Fail"}),
    "a size of memory that is none": manifest(
        runPolicy={"onOutOfMemory": {"increasePercent": 50, "maxMemory": "64 gigabytes"}}
    ),
    "the port of the progress server": manifest(port=2223),
    "a role without template where none is shared": manifest(
        template=None, replicaSpecs=_roles(chief={"template": _containers("a")}, worker={"replicas": 1})
    ),
    "a template without containers": manifest(template={"metadata": {"labels": {"a": "b"}}}),
    "several containers and no trainer": manifest(template=_containers("a", "b")),
    "restartPolicy in the template": manifest(
        template={"spec": {"restartPolicy": "Always", "containers": [{"name": "trainer", "image": "x"}]}}
    ),
    "restartPolicy of the only container": manifest(template=_containers("a", restartPolicy="Always")),
    "restartPolicyRules of the trainer next to a sidecar": manifest(
        template={
            "spec": {
                "containers": [
                    {"name": "sidecar", "image": "x"},
                    {
                        "name": "trainer",
                        "image": "x",
                        "restartPolicy": "Never",
                        "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
                    },
                ]
            }
        }
    ),
    "restartPolicy in a role's template": manifest(
        replicaSpecs=_roles(
            worker={"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "x"}]}}}
        )
    ),
    "TF_CONFIG in a container": manifest(template=_containers("trainer", env=_env("TF_CONFIG"))),
    "TF_CONFIG in an init container": manifest(
        template={
            "spec": {
                "initContainers": [{"name": "init", "image": "x", "env": _env("TF_CONFIG")}],
                "containers": [{"name": "trainer", "image": "x"}],
            }
        }
    ),
    "a variable of ours in a role": manifest(replicaSpecs=_roles(worker={"env": _env("DTJ_ROLE")})),
    "a checkpoint that goes nowhere": manifest(checkpoint={"everySteps": 10}),
    "a checkpoint in two places": manifest(checkpoint={"volume": {"emptyDir": {}}, "claimTemplate": CLAIM_TEMPLATE}),
    "a relative mount path": manifest(checkpoint={"path": "here", "volume": {"emptyDir": {}}}),
    "a volume with the name of that of the checkpoints": manifest(
        template={"spec": {"containers": [{"name": "a", "image": "x"}], "volumes": [{"name": "dtj-checkpoint"}]}},
        checkpoint={"volume": {"emptyDir": {}}},
    ),
    "a role's volume where the checkpoints are mounted": manifest(
        replicaSpecs=_roles(worker={"template": _mounted("containers", "/dtj/checkpoint")}),
        checkpoint={"claimTemplate": CLAIM_TEMPLATE},
    ),
    "a volume of an init container where the checkpoints are mounted": manifest(
        template=_mounted("initContainers", "/c"), checkpoint={"path": "/c", "volume": {"emptyDir": {}}}
    ),
    "checkpoints in memory of pods that do not have the whole state": manifest(
        strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1}, checkpoint={"inMemory": {}}
    ),
    "checkpoints in memory of pods that go with a lost one": manifest(checkpoint={"inMemory": {}}),
    "checkpoints in memory of a size that is none": manifest(
        checkpoint={"inMemory": {"sizeLimit": "1GB"}}, runPolicy={"restartScope": "Pod"}
    ),
    "checkpoints in memory that holds nothing": manifest(
        checkpoint={"inMemory": {"sizeLimit": "0"}}, runPolicy={"restartScope": "Pod"}
    ),
    "checkpoints in memory that holds less than any model": manifest(
        checkpoint={"inMemory": {"sizeLimit": "1023Ki"}}, runPolicy={"restartScope": "Pod"}
    ),
    "TensorBoard without checkpoints": manifest(tensorBoard={}),
    "TensorBoard with checkpoints on no volume": manifest(tensorBoard={}, checkpoint={"path": "/c"}),
    "TensorBoard with a volume of each pod's own": manifest(tensorBoard={}, checkpoint={"volume": {"emptyDir": {}}}),
    "TensorBoard with a second switch": manifest(tensorBoard={"enabled": True}, checkpoint={"path": "gs://b"}),
    "a claim in the form of older versions": manifest(checkpoint={"claimTemplate": {"storage": "1Gi"}}),
    "a claim that nobody can write to": manifest(checkpoint=_claim(accessModes=["ReadOnlyMany"])),
    "a claim for one pod and several workers": manifest(
        checkpoint=_claim(accessModes=["ReadWriteOncePod"]), roles={"worker": 4}
    ),
    "a claim for one pod and TensorBoard": manifest(
        checkpoint=_claim(accessModes=["ReadWriteOncePod"]), roles={"worker": 1}, tensorBoard={}
    ),
    "a claim without size": manifest(checkpoint={"claimTemplate": {}}),
}
"""Every rule that needs no stored object has at least one manifest that breaks it and nothing else."""

SCHEMA_BREAKERS: dict[str, JsonObject] = {
    "a strategy that is none": manifest(strategy="Horovod"),
    "no strategy": manifest(strategy=None),  # type: ignore[arg-type]  # it is left out
    "replicas as text": manifest(replicaSpecs=_roles(worker={"replicas": "two"})),
    "negative replicas": manifest(roles={"worker": -1}),
    "too many replicas": manifest(roles={"worker": 10_001}),
    "port zero": manifest(port=0),
    "port too large": manifest(port=65536),
    "an integer of more than 64 bits": manifest(checkpoint={"path": "/c", "everySteps": 10**19}),
    "a time between checkpoints that is none": manifest(checkpoint={"path": "/c", "everySeconds": "Auto"}),
    "an empty export path": manifest(export={"path": ""}),
    "an export as something unheard of": manifest(export={"path": "/e", "formats": ["SavedModel", "ONNX"]}),
    "an export as nothing": manifest(export={"path": "/e", "formats": []}),
    "a claim of a size that is none": manifest(
        checkpoint={"claimTemplate": {"spec": {"resources": {"requests": {"storage": "much"}}}}}
    ),
    "a claim without resources": manifest(checkpoint={"claimTemplate": {"spec": {"storageClassName": "fast"}}}),
    "a claim with a limit alone": manifest(
        checkpoint={"claimTemplate": {"spec": {"resources": {"limits": {"storage": "1Gi"}}}}}
    ),
    "a claim without storage": manifest(checkpoint={"claimTemplate": {"spec": {"resources": {"requests": {}}}}}),
    "a claim of a device": manifest(checkpoint=_claim(volumeMode="Block")),
    "a container without name": manifest(template={"spec": {"containers": [{"image": "x"}]}}),
    "an image that is a number": manifest(template=_containers("trainer", image=5)),
    "arguments that are no list": manifest(replicaSpecs=_roles(worker={"args": "--task=x"})),
    "a list where the template should be": manifest(template=[]),
    "resources that are no quantity": manifest(
        template=_containers("trainer", resources={"limits": {"memory": "8 gigs"}})
    ),
    "a role's resources that are no quantity": manifest(
        replicaSpecs=_roles(worker={"resources": {"requests": {"cpu": "1 core"}}})
    ),
    "a volume of a size that is none": manifest(checkpoint={"volume": {"emptyDir": {"sizeLimit": "1GB"}}}),
    "TensorBoard with resources that are no quantity": manifest(
        checkpoint={"path": "gs://b"}, tensorBoard={"resources": {"limits": {"memory": "much"}}}
    ),
    "a misspelt field": manifest(stratgy="OneDevice"),
    "a misspelt field of a role": manifest(replicaSpecs=_roles(worker={"replica": 1})),
    "a misspelt field of a container": manifest(template=_containers("trainer", imagee="x")),
}
"""Manifests that the schema's types and ranges refuse: one of each kind of refusal, not of each field."""
