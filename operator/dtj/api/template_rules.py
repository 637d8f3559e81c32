"""Relations between fields of a pod template that the API server can check when a job is applied.

The other relations are in :mod:`dtj.api.pod_checks`: CEL cannot see quantities, whose schema has no type, and what is
there for the server to check costs time at each write of a status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from dtj.api import names
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.rule import ROLE, TEMPLATES, Path, Rule

CONTAINER_KINDS: Final = ("containers", "initContainers")


def _rule(
    *, at: tuple[Path, ...], field: str, cel: str, found: Callable[[JsonObject], Iterator[str]], message: str
) -> Rule:
    """A rule that ``found`` breaks with each name that it yields.

    Offline the first of them is named. In CEL that would cost more than the API server allows.
    """
    return Rule(
        at=at,
        cel=cel,
        message=message,
        holds=lambda value: next(found(value), None) is None,
        field=field,
        names=lambda value: f"{message}; it is {next(found(value))}",
    )


def _containers(template: JsonObject, kind: str) -> list[JsonObject]:
    return objects(dig(template, "spec", kind))


def _volumes_exist(kind: str) -> Rule:
    def missing(template: JsonObject) -> Iterator[str]:
        volumes = {volume.get("name") for volume in objects(dig(template, "spec", "volumes"))}
        for container in _containers(template, kind):
            for mount in objects(container.get("volumeMounts")):
                if mount.get("name") not in volumes | {names.CHECKPOINT_VOLUME}:
                    yield text(mount.get("name"))

    return _rule(
        at=TEMPLATES,
        field=f"spec.{kind}",
        cel=f"!has(self.spec) || !has(self.spec.{kind}) || self.spec.{kind}.all(c, !has(c.volumeMounts) || "
        f"c.volumeMounts.all(m, m.name == '{names.CHECKPOINT_VOLUME}' || "
        "(has(self.spec.volumes) && self.spec.volumes.exists(v, v.name == m.name))))",
        found=missing,
        message="a container mounts a volume that does not exist: add it under spec.volumes, or remove the volumeMount",
    )


_SET_TWICE: Final = "a variable has both value and valueFrom: remove one of them"
_CEL_SET_ONCE: Final = "e, !has(e.value) || e.value == '' || !has(e.valueFrom)"


def _set_twice(variables: list[JsonObject]) -> Iterator[str]:
    return (text(v.get("name")) for v in variables if v.get("value") and v.get("valueFrom") is not None)


def _variables_are_set_once(kind: str) -> Rule:
    return _rule(
        at=TEMPLATES,
        field=f"spec.{kind}",
        cel=f"!has(self.spec) || !has(self.spec.{kind}) || "
        f"self.spec.{kind}.all(c, !has(c.env) || c.env.all({_CEL_SET_ONCE}))",
        found=lambda template: (
            name for container in _containers(template, kind) for name in _set_twice(objects(container.get("env")))
        ),
        message=_SET_TWICE,
    )


def _names_in_both_lists(template: JsonObject) -> Iterator[str]:
    main = {container.get("name") for container in _containers(template, "containers")}
    return (text(c.get("name")) for c in _containers(template, "initContainers") if c.get("name") in main)


TEMPLATE_RULES: Final[tuple[Rule, ...]] = (
    *(_volumes_exist(kind) for kind in CONTAINER_KINDS),
    *(_variables_are_set_once(kind) for kind in CONTAINER_KINDS),
    _rule(
        at=(ROLE,),
        field="env",
        cel=f"!has(self.env) || self.env.all({_CEL_SET_ONCE})",
        found=lambda role: _set_twice(objects(role.get("env"))),
        message=_SET_TWICE,
    ),
    _rule(
        at=TEMPLATES,
        field="spec.initContainers",
        cel="!has(self.spec) || !has(self.spec.initContainers) || !has(self.spec.containers) || "
        "self.spec.initContainers.all(i, !self.spec.containers.exists(c, c.name == i.name))",
        found=_names_in_both_lists,
        message="a container and an init container have the same name: rename one of them",
    ),
)
