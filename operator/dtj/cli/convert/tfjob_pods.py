"""The pod templates of a TFJob: what its operator wants in them and ours does not, and which roles share one. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Final

from pydantic import JsonValue

from dtj.api import names, quantities
from dtj.api.form import DTJ
from dtj.api.json import JsonObject, dig, fields_of, objects, text
from dtj.api.names import is_reserved
from dtj.api.spec import Role
from dtj.api.tfjob.names import CONTAINER, PORT
from dtj.core.replicas import TRAINING_ROLES

_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu")
_TPUS: Final = ("google.com/tpu", "cloud-tpus.google.com/")
_GROUP_NAME: Final = "scheduling.k8s.io/group-name"
_DIFFERENCES: Final[dict[str, JsonValue]] = {"command": [], "args": [], "resources": {}}
"""What of the trainer's container a role can have of its own next to a shared template, and how it says "nothing"."""


_SHARERS: Final = (Role.WORKER, *(role for role in Role if role is not Role.WORKER))
"""Whose template is the shared one: the first of these that there is."""


class NotConvertible(Exception):
    """No TFJob that Kubeflow would run; the message names the field, in one line."""


def mapping(value: JsonValue, path: str) -> JsonObject:
    """``value`` where it holds fields. Raises NotConvertible."""
    if not isinstance(value, dict):
        raise NotConvertible(f"{path}: must hold fields" if value is not None else f"{path}: is missing")
    return value


class Pods:
    """The templates by role, as they are taken over; what a person should know of it goes to ``notes``."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._templates: dict[Role, JsonObject] = {}
        self._ports: dict[Role, JsonValue] = {}

    def add(self, role: Role, template: JsonObject, path: str) -> None:
        """Take over the template of a role. Raises NotConvertible."""
        path = f"{path}.template"
        template = copy.deepcopy(template)  # YAML's anchors may have made it that of other roles, too
        spec = mapping(template.get("spec"), f"{path}.spec")
        main = _main(spec, f"{path}.spec.containers")
        if "restartPolicy" in spec:
            del spec["restartPolicy"]
            self._note(f"{path}.spec.restartPolicy", "left out: a TFJob uses the one next to the template, too")
        for field in ("restartPolicy", "restartPolicyRules"):
            if main.pop(field, None) is not None:
                self._note(f"{path}.spec.containers", f"{field} left out: the operator restarts pods")
        if main.get("name") == CONTAINER:
            main["name"] = names.MAIN_CONTAINER
            _rename(spec)
        self._take_port(role, main)
        if spec.get("hostNetwork") is True:
            taken = f"{self._ports[role]} and {names.STATUS_PORT}"
            words = f"each pod takes ports {taken} of its node: no two pods of jobs with these ports share a node"
            self._note(f"{path}.spec.hostNetwork", words)
        for container in (*objects(spec.get("initContainers")), *objects(spec.get("containers"))):
            self._take_variables(container, path)
        self._name_tpus(main, path)
        metadata = self._metadata(template.get("metadata"), path)
        self._templates[role] = {**({"metadata": metadata} if metadata else {}), "spec": spec}

    def port(self) -> JsonObject:
        """``port`` of a job, where it is not the usual one."""
        given = {role: port for role, port in self._ports.items() if port != names.DEFAULT_PORT}
        if not given:
            return {}
        role, port = next(((r, p) for r, p in given.items() if r in TRAINING_ROLES), next(iter(given.items())))
        if port == names.STATUS_PORT or not isinstance(port, int):
            self._note("spec.port", f"{port} serves the progress of the trainer: {names.DEFAULT_PORT} was kept")
            return {}
        if any(other != port for other in self._ports.values()):
            self._note("spec.port", f"all roles share one port: {port}, that of {role}")
        return {"port": port}

    def gpus(self) -> int:
        """Most GPUs that a pod that trains asks for."""
        amounts = [
            quantities.parse(dig(container, "resources", "limits", kind))
            for role in TRAINING_ROLES
            for container in objects(dig(self._templates.get(role, {}), "spec", "containers"))
            for kind in _GPUS
        ]
        return max((int(amount) for amount in amounts if amount is not None), default=0)

    @property
    def shared(self) -> JsonObject:
        """The template of the job: that of the workers, or of who there is."""
        sharer = min(self._templates, key=_SHARERS.index)
        return self._templates[sharer]

    def role_specs(self, roles: dict[Role, JsonObject]) -> JsonObject:
        """``replicaSpecs`` of a job: roles that differ little from the shared template say how; others have one."""
        specs: JsonObject = {}
        for role, role_spec in roles.items():
            differences = _differences(self.shared, self._templates[role])
            own: JsonObject = differences if differences is not None else {"template": self._templates[role]}
            specs[str(role)] = {**role_spec, **own}
        return specs

    def _note(self, field: str, words: str) -> None:
        self._notes.append(f"{field}: {words}")

    def _metadata(self, given: JsonValue, path: str) -> JsonObject:
        """Labels and annotations; a template has no other metadata here."""
        made: JsonObject = {}
        for kind in ("labels", "annotations"):
            found = fields_of(dig(given, kind))
            kept = {key: value for key, value in found.items() if key != _GROUP_NAME}
            if _GROUP_NAME in found:
                self._note(
                    f"{path}.metadata.{kind}", f"{_GROUP_NAME} left out: runPolicy.scheduling makes groups of pods"
                )
            if kept:
                made[kind] = kept
        return made

    def _take_port(self, role: Role, main: JsonObject) -> None:
        ports = objects(main.get("ports"))
        named = next((port for port in ports if port.get("name") == PORT), None)
        self._ports[role] = named.get("containerPort") if named is not None else names.DEFAULT_PORT
        rest: list[JsonValue] = [port for port in ports if port is not named]
        _set_or_remove(main, "ports", rest)

    def _take_variables(self, container: JsonObject, path: str) -> None:
        variables = objects(container.get("env"))
        reserved = [v for v in variables if is_reserved(text(v.get("name")))]
        for variable in reserved:
            what = f"variable {text(variable.get('name'))} of container {container.get('name')}"
            self._note(f"{path}.spec", f"{what} left out: the operator sets it")
        rest: list[JsonValue] = [v for v in variables if v not in reserved]
        _set_or_remove(container, "env", rest)

    def _name_tpus(self, main: JsonObject, path: str) -> None:
        for kind in fields_of(dig(main, "resources", "limits")):
            if kind.startswith(_TPUS):
                self._note(
                    f"{path}.spec",
                    f"{kind} stays as it is; for strategy TPU remove it, and set accelerator.profile and .topology",
                )


def _main(spec: JsonObject, path: str) -> JsonObject:
    """The container that trains."""
    containers = objects(spec.get("containers"))
    named = next((container for container in containers if container.get("name") == CONTAINER), None)
    if named is not None or len(containers) == 1:
        return named or containers[0]
    what = f"none is named {CONTAINER}: name the one that trains so" if containers else "there is none"
    raise NotConvertible(f"{path}: {what}")


def _rename(spec: JsonObject) -> None:
    """What else names the container by its name: references to its resources."""
    for reference in _below(spec, "resourceFieldRef"):
        if reference.get("containerName") == CONTAINER:
            reference["containerName"] = names.MAIN_CONTAINER


def _below(value: JsonValue, key: str) -> Iterator[JsonObject]:
    """All objects at ``key``, however deep."""
    if isinstance(value, list):
        for item in value:
            yield from _below(item, key)
    elif isinstance(value, dict):
        found = value.get(key)
        if isinstance(found, dict):
            yield found
        for item in value.values():
            yield from _below(item, key)


def _differences(shared: JsonObject, own: JsonObject) -> JsonObject | None:
    """The fields of a role that make ``shared`` the template ``own``; None where it needs one of its own."""
    common, other = copy.deepcopy(shared), copy.deepcopy(own)
    before, after = (DTJ.main_container(template["spec"]) for template in (common, other))
    made: JsonObject = {}
    for field, nothing in _DIFFERENCES.items():
        was, now = before.pop(field, nothing), after.pop(field, nothing)
        if was != now:
            made[field] = now
    return made if common == other else None


def _set_or_remove(container: JsonObject, key: str, items: list[JsonValue]) -> None:
    """Set a list; an empty one is left out."""
    if items:
        container[key] = items
    else:
        container.pop(key, None)
