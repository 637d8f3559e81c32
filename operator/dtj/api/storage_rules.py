"""The rules of checkpoints and of the claim that holds them: all pods mount it, TensorBoard's too."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from pydantic import JsonValue

from dtj.api import quantities
from dtj.api.json import JsonObject, dig, items_of, objects, text
from dtj.api.names import CHECKPOINT_MOUNT, CHECKPOINT_VOLUME, matches
from dtj.api.rule import CLAIM, IN_MEMORY, SPEC, TENSORBOARD, Rule, cel_count, count, roles_of
from dtj.api.spec import JobSpec, RestartScope, Role, Strategy
from dtj.api.storage import AccessMode

_MODES: Final = ("checkpoint", "claimTemplate", "spec", "accessModes")
_CEL_CLAIM: Final = "self.checkpoint.claimTemplate"
_CEL_TENSORBOARD: Final = "has(self.tensorBoard)"


def _modes(claim_spec: JsonValue) -> list[JsonValue]:
    return items_of(dig(claim_spec, "accessModes"))


def _pods(spec: JsonObject) -> int:
    """The most pods of a job at one time, or at least 2 if it is elastic."""
    has_board = isinstance(spec.get("tensorBoard"), dict)
    return count(spec, *Role) + has_board + (spec.get("elastic") is not None)


def _templates(spec: JsonObject) -> Iterator[JsonObject]:
    for holder in (spec, *roles_of(spec).values()):
        template = dig(holder, "template")
        if isinstance(template, dict):
            yield template


def _is_mounted(spec: JsonObject) -> bool:
    return any(dig(spec, "checkpoint", source) is not None for source in ("volume", "claimTemplate"))


def _volume_is_free(spec: JsonObject) -> bool:
    return not _is_mounted(spec) or not any(
        volume.get("name") == CHECKPOINT_VOLUME
        for template in _templates(spec)
        for volume in objects(dig(template, "spec", "volumes"))
    )


def _path_is_free(kind: str, spec: JsonObject) -> bool:
    path = text(dig(spec, "checkpoint", "path"), CHECKPOINT_MOUNT)
    return not _is_mounted(spec) or not any(
        mount.get("mountPath") == path and mount.get("name") != CHECKPOINT_VOLUME
        for template in _templates(spec)
        for container in objects(dig(template, "spec", kind))
        for mount in objects(container.get("volumeMounts"))
    )


_CEL_PATH: Final = f"(has(self.checkpoint.path) ? self.checkpoint.path : '{CHECKPOINT_MOUNT}')"


def _cel_of_templates(condition: str) -> str:
    """That ``condition`` holds for the spec ``{pod}`` of each template of a job whose checkpoints have a volume."""
    return (
        "!has(self.checkpoint) || (!has(self.checkpoint.volume) && !has(self.checkpoint.claimTemplate)) || "
        f"((!has(self.template) || !has(self.template.spec) || {condition.format(pod='self.template.spec')}) && "
        "self.replicaSpecs.all(r, self.replicaSpecs[r] == null || !has(self.replicaSpecs[r].template) || "
        "!has(self.replicaSpecs[r].template.spec) || "
        f"{condition.format(pod='self.replicaSpecs[r].template.spec')}))"
    )


VOLUME_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        at=(SPEC,),
        cel=_cel_of_templates(f"!has({{pod}}.volumes) || {{pod}}.volumes.all(v, v.name != '{CHECKPOINT_VOLUME}')"),
        message=f"the operator adds a volume {CHECKPOINT_VOLUME} to each pod: rename the one of the pod template",
        holds=_volume_is_free,
        field="checkpoint",
    ),
    *(
        Rule(
            at=(SPEC,),
            cel=_cel_of_templates(
                f"!has({{pod}}.{kind}) || {{pod}}.{kind}.all(c, !has(c.volumeMounts) || c.volumeMounts.all(m, "
                f"m.mountPath != {_CEL_PATH} || m.name == '{CHECKPOINT_VOLUME}'))"
            ),
            message="the operator mounts the checkpoint volume into each container, and one of the pod template has "
            "another volume at this path: choose another path for one of them",
            holds=partial(_path_is_free, kind),
            field="checkpoint.path",
        )
        for kind in ("containers", "initContainers")
    ),
)

SHARING_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        at=((*CLAIM, "spec"),),
        cel=f"!has(self.accessModes) || self.accessModes.exists(m, m != '{AccessMode.READ_ONLY_MANY}')",
        message=f"no pod could write checkpoints to a claim that is {AccessMode.READ_ONLY_MANY} alone: use "
        f"{AccessMode.READ_WRITE_MANY}",
        holds=lambda claim: not _modes(claim) or any(mode != AccessMode.READ_ONLY_MANY for mode in _modes(claim)),
        field="accessModes",
    ),
    Rule(
        at=(SPEC,),
        cel=f"!has(self.checkpoint) || !has({_CEL_CLAIM}) || !has({_CEL_CLAIM}.spec) || "
        f"!has({_CEL_CLAIM}.spec.accessModes) || "
        f"!{_CEL_CLAIM}.spec.accessModes.exists(m, m == '{AccessMode.READ_WRITE_ONCE_POD}') || "
        f"{cel_count(*Role)} + ({_CEL_TENSORBOARD} ? 1 : 0) + (has(self.elastic) ? 1 : 0) <= 1",
        message=f"a claim that is {AccessMode.READ_WRITE_ONCE_POD} is for one pod alone, and all pods of the job mount "
        f"it, TensorBoard's too: use {AccessMode.READ_WRITE_MANY}",
        holds=lambda spec: AccessMode.READ_WRITE_ONCE_POD not in _modes(dig(spec, *_MODES[:-1])) or _pods(spec) <= 1,
        field=".".join(_MODES),
    ),
)


def note_on_sharing(spec: JobSpec, raw_spec: JsonObject) -> str | None:
    """What to know of a claim that the pods of one node alone can mount; None if there is nothing to say."""
    template = spec.checkpoint.claim_template if spec.checkpoint is not None else None
    if template is None or template.spec is None or _pods(raw_spec) <= 1:
        return None
    modes = template.spec.access_modes
    if AccessMode.READ_WRITE_ONCE not in modes or AccessMode.READ_WRITE_MANY in modes:
        return None
    return (
        f"spec.{'.'.join(_MODES)}: pods on other nodes than the first cannot start with {AccessMode.READ_WRITE_ONCE}: "
        f"use {AccessMode.READ_WRITE_MANY}, unless all pods of the job fit on one node"
    )


_FLAT: Final = ("storage", "storageClassName", "accessModes")

CLAIM_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        at=(CLAIM,),
        cel=f"!({' || '.join(f'has(self.{field})' for field in _FLAT)})",
        message="claimTemplate is the template of a PersistentVolumeClaim: write storage as "
        "spec.resources.requests.storage, and move storageClassName and accessModes into spec",
        holds=lambda template: not any(template.get(field) is not None for field in _FLAT),
    ),
    Rule(
        at=(CLAIM,),
        cel="has(self.storage) || has(self.spec)",  # one message about one mistake
        message="the claim needs a size: set spec.resources.requests.storage, such as 50Gi",
        holds=lambda template: template.get("storage") is not None or template.get("spec") is not None,
    ),
)


_SIZE: Final = f"^[+]?({quantities.PATTERN})$"


_LEAST_MEMORY: Final = "1Mi"
"""Less holds no model that is worth a copy; and to Kubernetes, 0 is no limit at all."""


def _holds_copies(size: JsonValue) -> bool:
    least, given = quantities.parse(_LEAST_MEMORY), quantities.parse(size)
    return least is not None and given is not None and matches(_SIZE, size) and given >= least


def _keeps_in_memory(spec: JsonObject) -> bool:
    return dig(spec, *IN_MEMORY[1:]) is not None


MEMORY_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        at=(SPEC,),
        cel="!has(self.checkpoint) || !has(self.checkpoint.inMemory) || "
        f"self.strategy == '{Strategy.MULTI_WORKER_MIRRORED}'",
        message=f"only with {Strategy.MULTI_WORKER_MIRRORED} each pod has the whole training state: remove inMemory, "
        "or change the strategy",
        holds=lambda spec: not _keeps_in_memory(spec) or spec.get("strategy") == Strategy.MULTI_WORKER_MIRRORED,
        field="checkpoint.inMemory",
    ),
    Rule(
        at=(SPEC,),
        cel="!has(self.checkpoint) || !has(self.checkpoint.inMemory) || "
        f"self.strategy != '{Strategy.MULTI_WORKER_MIRRORED}' || "
        f"self.runPolicy.restartScope == '{RestartScope.POD}'",
        message="if one pod is lost, the others must stay, and their memory with them: set runPolicy.restartScope to "
        f"{RestartScope.POD}, or remove inMemory",
        holds=lambda spec: (
            not _keeps_in_memory(spec)
            or spec.get("strategy") != Strategy.MULTI_WORKER_MIRRORED
            or dig(spec, "runPolicy", "restartScope") == RestartScope.POD
        ),
        field="checkpoint.inMemory",
    ),
    Rule(
        at=(IN_MEMORY,),
        cel="!has(self.sizeLimit) || "
        f"(self.sizeLimit.matches('{_SIZE}') && quantity(self.sizeLimit).compareTo(quantity('{_LEAST_MEMORY}')) >= 0)",
        message=f"sizeLimit has to hold two copies of weights and optimizer: set {_LEAST_MEMORY} or more, such as 1Gi",
        holds=lambda given: given.get("sizeLimit") is None or _holds_copies(given["sizeLimit"]),
        field="sizeLimit",
    ),
)


def _shares_logs(checkpoint: JsonValue) -> bool:
    """Whether a pod that is no replica finds the checkpoint directory of the others."""
    if not isinstance(checkpoint, dict):
        return False
    volume = checkpoint.get("volume")
    if "claimTemplate" in checkpoint:
        return True
    if isinstance(volume, dict):
        return not {"emptyDir", "ephemeral"} & volume.keys()
    return "://" in text(checkpoint.get("path"))


TENSORBOARD_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        at=(SPEC,),
        cel="!has(self.tensorBoard) || "
        "(has(self.checkpoint) && (has(self.checkpoint.claimTemplate) || (has(self.checkpoint.volume) ? "
        "!has(self.checkpoint.volume.emptyDir) && !has(self.checkpoint.volume.ephemeral) : "
        "has(self.checkpoint.path) && self.checkpoint.path.contains('://'))))",
        message="TensorBoard reads the logs in the checkpoint directory, so it must share that directory "
        "with the pods: set checkpoint.claimTemplate, checkpoint.volume (not emptyDir or "
        "ephemeral), or a URL as checkpoint.path",
        holds=lambda spec: not isinstance(spec.get("tensorBoard"), dict) or _shares_logs(spec.get("checkpoint")),
        field="tensorBoard",
    ),
    Rule(
        at=(TENSORBOARD,),
        cel="!has(self.enabled)",
        message="tensorBoard.enabled is no longer a switch: remove enabled to turn TensorBoard on, or remove "
        "tensorBoard to turn it off",
        holds=lambda board: board.get("enabled") is None,
        field="enabled",
    ),
)
