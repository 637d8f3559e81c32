"""Relations between fields, each written once in both languages that must enforce it.

The API server evaluates ``cel`` at ``kubectl apply`` (``x-kubernetes-validations`` of the CRD); ``dtj validate``,
``dtj run`` and the operator evaluate ``holds``. Both show the same ``message``: what is wrong, what to do.
A test applies manifests that break each rule to a real API server and compares.
"""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from dtj.api import names, quantities
from dtj.api.changes import CHANGES
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.names import Env, is_reserved, matches
from dtj.api.rule import (
    ACCELERATORS,
    CHECKPOINT,
    ELASTICITY,
    JOB,
    ROLE,
    ROLES,
    RUN_POLICY,
    SPEC,
    TEMPLATES,
    Rule,
    Violation,
    broken,
    cel_count,
    count,
    roles_of,
)
from dtj.api.run_policy_rules import MANAGED_BY_RULES, RUN_POLICY_RULES
from dtj.api.spec import (
    COMMUNICATING,
    DATA_SERVICE,
    ELASTIC,
    MAX_REPLICAS,
    SINGLE,
    SINGLE_PROCESS,
    OnStraggler,
    RestartScope,
    Role,
    Strategy,
    as_role,
)
from dtj.api.storage_rules import CLAIM_RULES, MEMORY_RULES, SHARING_RULES, TENSORBOARD_RULES, VOLUME_RULES


def check(*, name: str, spec: JsonObject) -> tuple[Violation, ...]:
    """All rules that a job breaks, in the order of :data:`RULES`.

    ``spec`` must satisfy the schema's types; defaults need not be filled in.
    """
    return broken(RULES, {"metadata": {"name": name}, "spec": spec})


# -- what the rules ask, in Python ---------------------------------------------------------------------------


def _topology(spec: JsonObject, role: Role) -> JsonValue:
    """The shape of the TPU slice of a role that trains, by its own accelerator or the job's."""
    own = dig(roles_of(spec), role, "accelerator")
    return dig(own if own is not None else spec.get("accelerator"), "topology")


def _strategy(spec: JsonObject, *strategies: Strategy) -> bool:
    return spec.get("strategy") in strategies


def _containers(template: JsonObject) -> list[JsonObject]:
    return objects(dig(template, "spec", "containers"))


def _sets_reserved(variables: list[JsonObject]) -> bool:
    return any(is_reserved(text(variable.get("name"))) for variable in variables)


def _longest_name(role: Role) -> int:
    """Most characters of a job's name with this role: ``<job>-<role>-<index>-r<restart>`` must fit."""
    digits = 1 if role in SINGLE else len(str(MAX_REPLICAS - 1))
    return names.MAX_NAME_LENGTH - len(f"--{role}") - digits - names.RESTART_SUFFIX_LENGTH


_DNS_LABEL: Final = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_TOPOLOGY: Final = "^[1-9][0-9]{0,3}(x[1-9][0-9]{0,3}){1,2}$"
_QUANTITY: Final = f"^[+]?({quantities.PATTERN})$"


# -- and in CEL ----------------------------------------------------------------------------------------------


def _cel_strategy(*strategies: Strategy) -> str:
    return f"self.strategy in [{', '.join(repr(str(strategy)) for strategy in strategies)}]"


def _cel_reserved(variable: str) -> str:
    return f"({variable}.name == '{Env.TF_CONFIG}' || {variable}.name.startsWith('{Env.PREFIX}'))"


def _worker_bounds_hold(spec: JsonObject) -> bool:
    bounds = _bounds(dig(spec, "elastic"))
    return bounds is None or bounds[0] > bounds[1] or bounds[0] <= count(spec, Role.WORKER) <= bounds[1]


def _bounds(elastic: JsonValue) -> tuple[int, int] | None:
    """Least and largest number of workers of an elastic job."""
    if not isinstance(elastic, dict):
        return None
    least, most = elastic.get("minReplicas", 1), elastic.get("maxReplicas")
    return (least, most) if isinstance(least, int) and isinstance(most, int) else None


def _may_have_spares(spec: JsonObject) -> bool:
    slices = (dig(holder, "accelerator", "topology") for holder in (spec, *roles_of(spec).values()))
    return (
        _strategy(spec, Strategy.MULTI_WORKER_MIRRORED)
        and dig(spec, "runPolicy", "scheduling") is None
        and dig(spec, "runPolicy", "restartScope") != RestartScope.JOB
        and not any(slices)
    )


NO_SPARES: Final = (
    f"spares wait only in a {Strategy.MULTI_WORKER_MIRRORED} job without runPolicy.scheduling, queue, topology and "
    f"restartScope {RestartScope.JOB}: set spares to 0, or change these"
)

_TRAINING: Final = (Role.CHIEF, Role.WORKER)
_CEL_ROLES: Final = f"[{', '.join(repr(str(role)) for role in Role)}]"
_KNOWN_ROLES: Final = f": rename or remove it; the roles are {', '.join(Role)}"
_RESERVED_MESSAGE: Final = "the operator sets TF_CONFIG and all variables that begin with DTJ_: remove them"

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        at=(JOB,),
        # No regular expression: the name's length counts as unlimited in CEL's cost estimate.
        cel="!self.metadata.name.contains('.') && "
        "!['0', '1', '2', '3', '4', '5', '6', '7', '8', '9'].exists(d, self.metadata.name.startsWith(d))",
        message="the name becomes a host name: begin with a letter and use only lower-case letters, digits and '-'",
        holds=lambda job: matches(_DNS_LABEL, dig(job, "metadata", "name")),
        field="metadata.name",
    ),
    *(
        Rule(
            at=(JOB,),
            cel=f"!('{role}' in self.spec.replicaSpecs) || size(self.metadata.name) <= {_longest_name(role)}",
            message=f"the name is too long: with role {role}, use at most {_longest_name(role)} characters, "
            f"so that <name>-{role}-<index> and a suffix for restarts fit into "
            f"{names.MAX_NAME_LENGTH} characters",
            holds=lambda job, role=role: (
                dig(job, "spec", "replicaSpecs", role) is None  # type: ignore[misc]
                or len(text(dig(job, "metadata", "name"))) <= _longest_name(role)
            ),
            field="metadata.name",
        )
        for role in Role
    ),
    Rule(
        at=(ROLES,),
        cel=f"self.all(r, r in {_CEL_ROLES})",
        message=f"the only roles are {', '.join(Role)}: rename or remove the others",
        holds=lambda roles: all(as_role(role) for role in roles),
        names=lambda roles: f"there is no role {next(role for role in roles if as_role(role) is None)}{_KNOWN_ROLES}",
        # The first of them alone: joining keys, whose length counts as unlimited, is beyond CEL's budget.
        message_cel=f"'there is no role ' + self.filter(r, !(r in {_CEL_ROLES}))[0] + '{_KNOWN_ROLES}'",
    ),
    Rule(
        at=(ROLES,),
        cel="self.all(r, self[r] != null)",
        message="a role must not be null: give it a value such as {replicas: 1}, or remove it",
        holds=lambda roles: None not in roles.values(),
    ),
    Rule(
        at=(SPEC,),
        cel=f"{cel_count(*_TRAINING)} >= 1",
        message="no replica trains: set replicas of chief or worker to 1 or more",
        holds=lambda spec: count(spec, *_TRAINING) >= 1,
        field="replicaSpecs",
    ),
    *(
        Rule(
            at=(SPEC,),
            cel=f"{cel_count(role)} <= 1",
            message=f"a job has at most one {role}: set {role}.replicas to 1",
            holds=lambda spec, role=role: count(spec, role) <= 1,  # type: ignore[misc]
            field="replicaSpecs",
        )
        for role in SINGLE
    ),
    *(
        Rule(
            at=(SPEC,),
            cel=f"{cel_count(role)} == 0 || {cel_count(other)} >= 1",
            message=f"the tf.data service needs both dispatcher and data-worker: add a {other}, or remove {role}",
            holds=lambda spec, role=role, other=other: count(spec, role) == 0 or count(spec, other) >= 1,  # type: ignore[misc]
            field="replicaSpecs",
        )
        for role, other in (DATA_SERVICE, DATA_SERVICE[::-1])
    ),
    Rule(
        at=(SPEC,),
        cel=f"!({_cel_strategy(*SINGLE_PROCESS)}) || {cel_count(*_TRAINING)} <= 1",
        message="strategies OneDevice, Mirrored and CentralStorage train in one process: keep one chief "
        "or worker, or use strategy MultiWorkerMirrored",
        holds=lambda spec: not _strategy(spec, *SINGLE_PROCESS) or count(spec, *_TRAINING) <= 1,
        field="replicaSpecs",
    ),
    Rule(
        at=(SPEC,),
        cel=f"{_cel_strategy(Strategy.PARAMETER_SERVER)} || {cel_count(Role.PS)} == 0",
        message="role ps needs strategy ParameterServer: remove ps, or change the strategy",
        holds=lambda spec: _strategy(spec, Strategy.PARAMETER_SERVER) or count(spec, Role.PS) == 0,
        field="replicaSpecs",
    ),
    Rule(
        at=(SPEC,),
        cel=f"!({_cel_strategy(Strategy.PARAMETER_SERVER)}) || "
        f"({cel_count(Role.PS)} >= 1 && {cel_count(Role.WORKER)} >= 1)",
        message="strategy ParameterServer needs at least one ps and one worker: add them",
        holds=lambda spec: (
            not _strategy(spec, Strategy.PARAMETER_SERVER)
            or (count(spec, Role.PS) >= 1 and count(spec, Role.WORKER) >= 1)
        ),
        field="replicaSpecs",
    ),
    Rule(
        at=(SPEC,),
        cel=f"!({_cel_strategy(Strategy.PIPELINE)}) || {cel_count(Role.WORKER)} >= 2",
        message="strategy Pipeline needs at least two stages: set worker.replicas to 2 or more",
        holds=lambda spec: not _strategy(spec, Strategy.PIPELINE) or count(spec, Role.WORKER) >= 2,
        field="replicaSpecs",
    ),
    Rule(
        at=(SPEC,),
        cel=f"!({_cel_strategy(Strategy.TPU)}) || [{', '.join(repr(str(role)) for role in _TRAINING)}].all(r, "
        "!(r in self.replicaSpecs) || self.replicaSpecs[r] == null || self.replicaSpecs[r].replicas == 0 || "
        "(has(self.replicaSpecs[r].accelerator) ? has(self.replicaSpecs[r].accelerator.topology) "
        ": has(self.accelerator) && has(self.accelerator.topology)))",
        message="strategy TPU needs the shape of the slice: set accelerator.profile and accelerator.topology, "
        "such as tpu-v5e and 2x4",
        holds=lambda spec: (
            not _strategy(spec, Strategy.TPU)
            or all(_topology(spec, role) is not None for role in _TRAINING if count(spec, role))
        ),
        field="accelerator",
    ),
    Rule(
        at=(SPEC,),
        cel="has(self.template) || self.replicaSpecs.all(r, self.replicaSpecs[r] == null || "
        "has(self.replicaSpecs[r].template))",
        message="a pod template is needed: set template, or a template for each role",
        holds=lambda spec: (
            isinstance(spec.get("template"), dict)
            or all(dig(role, "template") is not None for role in roles_of(spec).values() if role is not None)
        ),
        field="template",
    ),
    Rule(
        at=(SPEC,),
        cel=f"self.port != {names.STATUS_PORT}",
        message=f"port {names.STATUS_PORT} serves the progress of the trainer: choose another port",
        holds=lambda spec: spec.get("port") != names.STATUS_PORT,
        field="port",
    ),
    Rule(
        at=TEMPLATES,
        cel="has(self.spec) && has(self.spec.containers) && size(self.spec.containers) > 0",
        message="the template has no container: add one named trainer under spec.containers",
        holds=lambda template: bool(_containers(template)),
    ),
    Rule(
        at=TEMPLATES,
        cel="!has(self.spec) || !has(self.spec.containers) || size(self.spec.containers) <= 1 || "
        f"self.spec.containers.exists(c, c.name == '{names.MAIN_CONTAINER}')",
        message="the template has several containers, and none is named trainer: name the one that runs "
        "the training trainer",
        holds=lambda template: (
            len(_containers(template)) <= 1
            or any(container.get("name") == names.MAIN_CONTAINER for container in _containers(template))
        ),
    ),
    Rule(
        at=TEMPLATES,
        cel="!has(self.spec) || !has(self.spec.restartPolicy)",
        message="restartPolicy must not be set in a template, because the operator restarts pods: remove it",
        holds=lambda template: dig(template, "spec", "restartPolicy") is None,
    ),
    Rule(
        at=TEMPLATES,
        cel="!has(self.spec) || !has(self.spec.containers) || self.spec.containers.all(c, "
        "((!has(c.restartPolicy) || c.restartPolicy == 'Never') && !has(c.restartPolicyRules)) || "
        f"(size(self.spec.containers) > 1 && c.name != '{names.MAIN_CONTAINER}'))",
        message="the container of the training must not set restartPolicy or restartPolicyRules, because the operator "
        "restarts pods: remove them",
        holds=lambda template: all(
            (container.get("restartPolicy") in (None, "Never") and container.get("restartPolicyRules") is None)
            or (len(_containers(template)) > 1 and container.get("name") != names.MAIN_CONTAINER)
            for container in _containers(template)
        ),
        field="spec.containers",
    ),
    *(
        Rule(
            at=TEMPLATES,
            cel=f"!has(self.spec) || !has(self.spec.{containers}) || self.spec.{containers}.all(c, "
            f"!has(c.env) || !c.env.exists(e, {_cel_reserved('e')}))",
            message=_RESERVED_MESSAGE,
            holds=lambda template, containers=containers: (
                not any(  # type: ignore[misc]
                    _sets_reserved(objects(container.get("env")))
                    for container in objects(dig(template, "spec", containers))
                )
            ),
            field=f"spec.{containers}",
        )
        for containers in ("containers", "initContainers")
    ),
    Rule(
        at=(ROLE,),
        cel=f"!has(self.env) || !self.env.exists(e, {_cel_reserved('e')})",
        message=_RESERVED_MESSAGE,
        holds=lambda role: not _sets_reserved(objects(role.get("env"))),
        field="env",
    ),
    Rule(
        at=ACCELERATORS,
        cel=f"!has(self.topology) || self.topology.matches('{_TOPOLOGY}')",
        message="topology must be two or three numbers of chips, such as 2x4 or 2x2x4",
        holds=lambda accelerator: accelerator.get("topology") is None or matches(_TOPOLOGY, accelerator["topology"]),
        field="topology",
    ),
    Rule(
        at=(CHECKPOINT,),
        cel="has(self.path) || has(self.volume) || has(self.claimTemplate) || has(self.inMemory)",
        message="checkpoint needs a place: set path, volume, claimTemplate or inMemory",
        holds=lambda checkpoint: any(key in checkpoint for key in ("path", "volume", "claimTemplate", "inMemory")),
    ),
    Rule(
        at=(CHECKPOINT,),
        cel="!(has(self.volume) && has(self.claimTemplate))",
        message="volume and claimTemplate exclude each other: remove one of them",
        holds=lambda checkpoint: not ("volume" in checkpoint and "claimTemplate" in checkpoint),
    ),
    Rule(
        at=(CHECKPOINT,),
        cel="!(has(self.volume) || has(self.claimTemplate)) || !has(self.path) || "
        "(self.path.startsWith('/') && !self.path.contains(':'))",
        message="path is the mount point of the volume: it must begin with '/' and must not contain ':'",
        holds=lambda checkpoint: (
            not ("volume" in checkpoint or "claimTemplate" in checkpoint)
            or "path" not in checkpoint
            or (text(checkpoint["path"]).startswith("/") and ":" not in text(checkpoint["path"]))
        ),
        field="path",
    ),
    *CLAIM_RULES,
    *MEMORY_RULES,
    *SHARING_RULES,
    *VOLUME_RULES,
    Rule(
        at=(SPEC,),
        cel=f"!has(self.communication) || {_cel_strategy(*COMMUNICATING)}",
        message=f"only under strategies {' and '.join(COMMUNICATING)} do GPUs add up gradients: remove communication, "
        "or change the strategy",
        holds=lambda spec: spec.get("communication") is None or _strategy(spec, *COMMUNICATING),
        field="communication",
    ),
    Rule(
        at=(SPEC,),
        cel=f"!has(self.elastic) || {_cel_strategy(*ELASTIC)}",
        message=f"only strategies {' and '.join(ELASTIC)} can change their number of workers: "
        "remove elastic, or change the strategy",
        holds=lambda spec: spec.get("elastic") is None or _strategy(spec, *ELASTIC),
        field="elastic",
    ),
    Rule(
        at=(ELASTICITY,),
        cel="self.minReplicas <= self.maxReplicas",
        message="minReplicas must not be larger than maxReplicas: change one of them",
        holds=lambda elastic: (
            not isinstance(elastic.get("maxReplicas"), int) or elastic.get("minReplicas", 1) <= elastic["maxReplicas"]  # type: ignore[operator]
        ),
    ),
    Rule(
        at=(SPEC,),
        cel="!has(self.elastic) || self.elastic.minReplicas > self.elastic.maxReplicas || "
        f"({cel_count(Role.WORKER)} >= self.elastic.minReplicas && "
        f"{cel_count(Role.WORKER)} <= self.elastic.maxReplicas)",
        message="worker.replicas must be from elastic.minReplicas to elastic.maxReplicas: change one of them",
        holds=_worker_bounds_hold,
        field="replicaSpecs",
    ),
    Rule(
        at=(SPEC,),
        cel="!has(self.elastic) || self.elastic.spares == 0 || "
        f"({_cel_strategy(Strategy.MULTI_WORKER_MIRRORED)} && !has(self.runPolicy.scheduling) && "
        f"self.runPolicy.restartScope != '{RestartScope.JOB}' && "
        "!(has(self.accelerator) && has(self.accelerator.topology)) && "
        "self.replicaSpecs.all(r, self.replicaSpecs[r] == null || !has(self.replicaSpecs[r].accelerator) || "
        "!has(self.replicaSpecs[r].accelerator.topology)))",
        message=NO_SPARES,
        holds=lambda spec: not dig(spec, "elastic", "spares") or _may_have_spares(spec),
        field="elastic",
    ),
    Rule(
        at=(ELASTICITY,),
        cel=f"self.onStraggler == '{OnStraggler.NONE}' || self.spares > 0",
        message="onStraggler needs a spare: set spares",
        holds=lambda elastic: (
            elastic.get("onStraggler", OnStraggler.NONE) == OnStraggler.NONE or bool(elastic.get("spares"))
        ),
        field="onStraggler",
    ),
    *RUN_POLICY_RULES,
    Rule(
        at=((*RUN_POLICY, "onOutOfMemory"),),
        cel=f"self.maxMemory.matches('{_QUANTITY}')",
        message="maxMemory must be a size such as 64Gi",
        holds=lambda given: matches(_QUANTITY, given.get("maxMemory")),
        field="maxMemory",
    ),
    *TENSORBOARD_RULES,
    *CHANGES,
    *MANAGED_BY_RULES,
)
