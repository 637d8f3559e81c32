"""What a TFJob must hold to be run, each rule written once in both languages that must enforce it.

The chart's policy evaluates ``cel`` at ``kubectl apply``; ``dtj validate`` and the operator evaluate ``holds``.
What Kubeflow's operator runs to its end as written is accepted. Refused is what can never end well, and what that
operator would ignore without a word.

In the CEL of a rule about each role, ``role`` is its key, and ``self`` its value, which may be null.
``scripts/tfjob_policy.py`` has the variables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from dtj.api.json import JsonObject, dig, fields_of, objects, text
from dtj.api.kueue import MULTIKUEUE
from dtj.api.names import MAX_NAME_LENGTH, Env, matches
from dtj.api.rule import ANY_KEY, JOB, RUN_POLICY, SPEC, Path, Rule, Violation, broken
from dtj.api.spec import CleanPodPolicy, RestartPolicy, SuccessPolicy
from dtj.api.tfjob import names
from dtj.api.tfjob.read import ROLES

TF_ROLES: Final[Path] = (*SPEC, "tfReplicaSpecs")
TF_ROLE: Final[Path] = (*TF_ROLES, ANY_KEY)
GANG: Final[Path] = (*RUN_POLICY, "schedulingPolicy")


def check(*, name: str, spec: JsonObject) -> tuple[Violation, ...]:
    """All rules that a TFJob breaks, in the order of :data:`RULES`. ``spec`` must satisfy the schema's types."""
    roles = {key: fields_of(role) for key, role in fields_of(spec.get("tfReplicaSpecs")).items()}
    several = sum(max(_replicas(role), 0) for role in roles.values()) > 1
    around: JsonObject = {_JOB: name, _SEVERAL: several}
    asked: JsonObject = {key: {**role, **around, _KEY: key} for key, role in roles.items()}
    root: JsonObject = {"metadata": {"name": name}, "spec": {**spec, "tfReplicaSpecs": asked}}
    return broken(RULES, root, member=".{}")


# -- what the rules ask, in Python ---------------------------------------------------------------------------

_KEY, _JOB, _SEVERAL = "", " job", " several"
"""What rules about a role see of what is around it, under names that no field has."""


def _lower(role: JsonObject) -> str:
    return text(role[_KEY]).lower()


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


def _replicas(role: JsonObject) -> int:
    return _number(role.get("replicas"), 1)


def _containers(role: JsonObject) -> list[JsonObject]:
    return objects(dig(role, "template", "spec", "containers"))


def _without_image(role: JsonObject) -> list[str]:
    return [text(container.get("name")) for container in _containers(role) if not container.get("image")]


def _of_main(role: JsonObject, field: str) -> list[JsonObject]:
    """The items of a list of the container that trains."""
    mains = (container for container in _containers(role) if container.get("name") == names.CONTAINER)
    return [item for container in mains for item in objects(container.get(field))]


def _bad_ports(role: JsonObject) -> list[int]:
    ports = (_number(port.get("containerPort"), 0) for port in _of_main(role, "ports"))
    return [port for port in ports if not 1 <= port <= _MAX_PORT]


def _last_service(role: JsonObject) -> str:
    return f"{role[_JOB]}-{_lower(role)}-{_replicas(role) - 1}"


def _trains(roles: JsonObject) -> bool:
    return any(_lower(fields_of(role)) in _TRAIN and _replicas(fields_of(role)) > 0 for role in roles.values())


_HOST_NAME: Final = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_MAX_PORT: Final = 65535
_TRAIN: Final = ("chief", names.MASTER, "worker")
_SINGLE: Final = ("chief", names.MASTER, "evaluator")


# -- and in CEL ----------------------------------------------------------------------------------------------

_CEL_REPLICAS: Final = "(self == null ? 1 : self.?replicas.orValue(1))"
_CEL_CONTAINERS: Final = "(self == null ? [] : self.?template.?spec.?containers.orValue([]))"
_CEL_SERVICE: Final = f"object.metadata.name + '-' + role.lowerAscii() + '-' + string({_CEL_REPLICAS} - 1)"


def _of_role(expression: str) -> str:
    return expression.replace("self", "self[role]")


def _cel_of_main(field: str, item: str) -> str:
    """The items of a list of the container that trains for which ``item`` holds, in a list for each container."""
    return (
        f"{_CEL_CONTAINERS}.filter(c, c.name == '{names.CONTAINER}').map(c, c.?{field}.orValue([]).filter(i, {item}))"
    )


_CEL_BAD_PORTS: Final = _cel_of_main("ports", f"i.containerPort < 1 || i.containerPort > {_MAX_PORT}")
_CEL_OWN_CONFIG: Final = _cel_of_main("env", f"i.name == '{Env.TF_CONFIG}'")


def _rule(
    place: Path,
    field: str,
    cel: str,
    holds: Callable[[JsonObject], bool] | None,
    words: str,
    seen: Callable[[JsonObject], str] | None = None,
    cel_seen: str = "",
) -> Rule:
    """A rule whose message is what is ``seen``, in both languages, and ``words``."""
    return Rule(
        at=(place,),
        field=field,
        cel=cel,
        holds=holds,
        message=words,
        names=(lambda value: f"{seen(value)} {words}") if seen is not None else None,
        message_cel=f"{cel_seen} + {json.dumps(f' {words}')}" if cel_seen else json.dumps(words),
    )


def _one_of(place: Path, field: str, allowed: Sequence[str], *, empty: bool = True) -> Rule:
    """A field that has one of these values, if any; empty is none."""
    known = ["", *allowed] if empty else [*allowed]
    return _rule(
        place,
        field,
        f"self == null || !has(self.{field}) || self.{field} in {json.dumps(known)}",
        lambda value: value.get(field) is None or value[field] in known,
        f"is unknown: use {' or '.join(allowed).replace(' or ', ', ', len(allowed) - 2)}, or remove it",
        lambda value: json.dumps(value[field]),
        f"'\"' + self.{field} + '\"'",
    )


def _at_least(least: int, place: Path, field: str) -> Rule:
    return _rule(
        place,
        field,
        f"self == null || !has(self.{field}) || self.{field} >= {least}",
        lambda value: _number(value.get(field), least) >= least,
        f"is too small: set it to {least} or more, or remove it",
        lambda value: str(value[field]),
        f"string(self.{field})",
    )


_CONTAINERS: Final = "template.spec.containers"
_WHILE_IT_RUNS: Final = "while the job runs: suspend the job first, or delete it and create it again"

RULES: Final[tuple[Rule, ...]] = (
    _rule(
        JOB,
        "metadata.name",
        f"self.metadata.name.matches('{_HOST_NAME}')",
        lambda job: matches(_HOST_NAME, dig(job, "metadata", "name")),
        "becomes a host name: begin with a letter and use only lower-case letters, digits and '-'",
        lambda job: text(dig(job, "metadata", "name")),
        "self.metadata.name",
    ),
    _rule(
        TF_ROLE,
        "",
        f"role.lowerAscii() in {json.dumps([*ROLES])}",
        lambda role: _lower(role) in ROLES,
        "is not a role of a TFJob: use Chief, Worker, PS or Evaluator",
    ),
    _rule(
        TF_ROLES,
        "",
        "self.all(r, self.filter(s, s.lowerAscii().replace('master', 'chief') == "
        "r.lowerAscii().replace('master', 'chief')).size() == 1)",
        lambda roles: len({role.lower().replace(names.MASTER, "chief") for role in roles}) == len(roles),
        "one role is there twice (Master is Chief, and upper and lower case do not count): remove one of both",
    ),
    _rule(
        TF_ROLES,
        "",
        f"self.exists(role, role.lowerAscii() in {json.dumps(_TRAIN)} && {_of_role(_CEL_REPLICAS)} > 0)",
        _trains,
        "no replica trains: set replicas of Worker or Chief to 1 or more",
    ),
    _at_least(0, TF_ROLE, "replicas"),
    _rule(
        TF_ROLE,
        "replicas",
        f"!(role.lowerAscii() in {json.dumps(_SINGLE)}) || {_CEL_REPLICAS} <= 1",
        lambda role: _lower(role) not in _SINGLE or _replicas(role) <= 1,
        "is more than TensorFlow knows of this role: set it to 1",
        lambda role: str(role["replicas"]),
        "string(self.replicas)",
    ),
    _rule(
        TF_ROLE,
        "",
        f"{_CEL_REPLICAS} < 1 || size({_CEL_SERVICE}) <= {MAX_NAME_LENGTH}",
        lambda role: _replicas(role) < 1 or len(_last_service(role)) <= MAX_NAME_LENGTH,
        f"would be the name of a Service, which has at most {MAX_NAME_LENGTH} characters: shorten the name of the job",
        _last_service,
        _CEL_SERVICE,
    ),
    _one_of(TF_ROLE, "restartPolicy", ["Always", *RestartPolicy]),
    _rule(
        TF_ROLE,
        _CONTAINERS,
        f"{_CEL_CONTAINERS}.exists(c, c.name == '{names.CONTAINER}')",
        lambda role: any(container.get("name") == names.CONTAINER for container in _containers(role)),
        f"no container is named {names.CONTAINER}: give that name to the one that trains",
    ),
    _rule(
        TF_ROLE,
        _CONTAINERS,
        f"{_CEL_CONTAINERS}.all(c, c.?image.orValue('') != '')",
        lambda role: not _without_image(role),
        "has no image: name one",
        lambda role: _without_image(role)[0],
        f"{_CEL_CONTAINERS}.filter(c, c.?image.orValue('') == '')[0].name",
    ),
    _rule(
        TF_ROLE,
        _CONTAINERS,
        f"{_CEL_BAD_PORTS}.all(l, l.size() == 0)",
        lambda role: not _bad_ports(role),
        f"is no port: use 1 to {_MAX_PORT}",
        lambda role: f"containerPort {_bad_ports(role)[0]}",
        f"'containerPort ' + string({_CEL_BAD_PORTS}.filter(l, l.size() > 0)[0][0].containerPort)",
    ),
    _rule(
        TF_ROLE,
        _CONTAINERS,
        f"!variables.several || {_CEL_OWN_CONFIG}.all(l, l.size() == 0)",
        lambda role: not role[_SEVERAL] or all(each.get("name") != Env.TF_CONFIG for each in _of_main(role, "env")),
        f"{Env.TF_CONFIG} is set by the operator in a job of several replicas: remove it",
    ),
    _one_of(SPEC, "successPolicy", [SuccessPolicy.ALL_WORKERS]),
    _one_of(RUN_POLICY, "cleanPodPolicy", [*CleanPodPolicy]),
    _one_of(RUN_POLICY, "managedBy", [names.CONTROLLER, MULTIKUEUE], empty=False),
    _at_least(1, RUN_POLICY, "activeDeadlineSeconds"),
    *(_at_least(0, RUN_POLICY, field) for field in ("backoffLimit", "ttlSecondsAfterFinished")),
    *(_at_least(0, GANG, field) for field in ("minAvailable", "scheduleTimeoutSeconds")),
    # What may change, only the API server can say.
    _rule(
        RUN_POLICY,
        "managedBy",
        "self.?managedBy.orValue('') == oldObject.?spec.?runPolicy.?managedBy.orValue('')",
        None,
        "cannot be changed: delete the job and create it again",
    ),
    _rule(
        TF_ROLES,
        "",
        "variables.mayChange || variables.oldRoles.all(role, role in self)",
        None,
        f"cannot be removed {_WHILE_IT_RUNS}",
        cel_seen="variables.oldRoles.filter(role, !(role in self))[0]",
    ),
    _rule(
        TF_ROLE,
        "template",
        "variables.mayChange || !(role in variables.oldRoles) || self == null || variables.oldRoles[role] == null "
        "|| self.?template.orValue({}) == variables.oldRoles[role].?template.orValue({})",
        None,
        f"cannot be changed {_WHILE_IT_RUNS}",
    ),
    _rule(
        SPEC,
        "successPolicy",
        "variables.mayChange || self.?successPolicy.orValue('') == oldObject.?spec.?successPolicy.orValue('')",
        None,
        f"cannot be changed {_WHILE_IT_RUNS}",
    ),
)
