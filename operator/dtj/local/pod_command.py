"""From a pod's manifest to the command of its main container, and what of the pod a process cannot have. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dtj.api.json import JsonObject, dig, items_of, objects, text
from dtj.api.names import CHECKPOINT_VOLUME, MEMORY_VOLUME, SHARED_MEMORY_VOLUME, WORLD_VOLUME, Env, is_reserved
from dtj.core.pod_state import main_container_of
from dtj.local.trainer import Trainer

TERMINATION_LOG: Final = "DTJ_TERMINATION_LOG"
"""Where the trainer writes its last words: /dev/termination-log in a container."""

METRICS_FILE: Final = "DTJ_METRICS_FILE"
"""Where the trainer writes what it measures."""

_REFERENCE: Final = re.compile(r"\$(\$|\(([-._a-zA-Z][-._a-zA-Z0-9]*)\))")
_NO_PROXY: Final = ("no_proxy", "NO_PROXY")
_LOOPBACK: Final = "127.0.0.1,localhost"


_OF_THE_LOG: Final = (Env.LOG_FORMAT, "DTJ_LOG_LEVEL")
"""What a person sets for the trainer where there is no chart."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to execute, with which environment."""

    arguments: tuple[str, ...]
    environment: dict[str, str]


def command_of(
    pod: JsonObject, *, trainer: Trainer, environ: Mapping[str, str], defaults: Mapping[str, str]
) -> Command:
    """The command of the pod's main container, to be run by the trainer's environment.

    ``environ`` is the runner's own environment, of which the process gets what is not the job's business;
    ``defaults`` are variables that hold where neither it nor the pod sets them.
    """
    container = main_container_of(pod)
    inherited = {name: value for name, value in environ.items() if _is_passed_on(name)}
    variables = _variables(container, environ)
    environment = {**defaults, **trainer.environment(inherited), **variables}
    if "PATH" in variables:
        environment = {**environment, "PATH": trainer.environment(variables)["PATH"]}
    if "PYTHONPATH" in variables and trainer.source is not None:
        # After the pod's own folders, as what is installed in the image is found after them.
        folders = filter(None, (variables["PYTHONPATH"], str(trainer.source)))
        environment = {**environment, "PYTHONPATH": os.pathsep.join(folders)}
    for name in _NO_PROXY:
        # By default, gRPC uses a proxy for 127.0.0.1 too.
        environment[name] = ",".join(part for part in (environment.get(name), _LOOPBACK) if part)
    words = [*(items_of(container.get("command")) or trainer.command), *items_of(container.get("args"))]
    return Command(tuple(_expand(str(word), variables) for word in words), environment)


def _is_passed_on(name: str) -> bool:
    """Whether a variable of the runner is for its processes too: what tells them their place in the job is not."""
    return name in _OF_THE_LOG or not is_reserved(name)


def problems_of(pod: JsonObject, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What the main container needs and only a cluster has, as ``field: message``."""
    main = main_container_of(pod)
    containers = objects(dig(pod, "spec", "containers"))
    place = next((i for i, container in enumerate(containers) if container is main), 0)
    path = f"spec.containers[{place}]"
    found = [
        f"{path}.env[{index}].valueFrom: {name} comes from the cluster, and there is none on this machine: "
        f"export {name} before the run"
        for index, variable in enumerate(objects(main.get("env")))
        if "valueFrom" in variable and (name := text(variable.get("name"))) not in environ
    ]
    if main.get("envFrom"):
        found.append(f"{path}.envFrom: comes from the cluster, and there is none on this machine: give the variables")
    return (*found, *(f"{where}: holds a NUL character, which no process can get" for where in _nul_in(main, path)))


def _nul_in(container: JsonObject, path: str) -> Iterator[str]:
    """The fields of a container with a NUL character, which ends a text for the operating system."""
    for field in ("command", "args"):
        for index, word in enumerate(items_of(container.get(field))):
            if "\0" in str(word):
                yield f"{path}.{field}[{index}]"
    for index, variable in enumerate(objects(container.get("env"))):
        if "\0" in text(variable.get("name")) + text(variable.get("value")):
            yield f"{path}.env[{index}]"


def omissions_of(pod: JsonObject) -> tuple[str, ...]:
    """The parts of the pod that are not played on this machine, in words; empty where there are none."""
    main, spec = main_container_of(pod), dig(pod, "spec")
    sidecars = [container for container in objects(dig(spec, "containers")) if container is not main]
    played = (CHECKPOINT_VOLUME, MEMORY_VOLUME, SHARED_MEMORY_VOLUME, WORLD_VOLUME)
    volumes = [volume for volume in objects(dig(spec, "volumes")) if volume.get("name") not in played]
    parts = (
        ("init container", objects(dig(spec, "initContainers"))),
        ("sidecar", sidecars),
        ("volume", volumes),
    )
    folder = main.get("workingDir")  # of the image: a run is in the folder in which it was started
    named = tuple(f"{kind} {text(item.get('name'))}" for kind, items in parts for item in items)
    return (*named, f"workingDir {folder}") if folder else named


def image_of(pod: JsonObject) -> str:
    """The main container's image."""
    return text(main_container_of(pod).get("image"))


def _variables(container: JsonObject, environ: Mapping[str, str]) -> dict[str, str]:
    """The container's variables in order, each with references to those before it filled in."""
    variables: dict[str, str] = {}
    for variable in objects(container.get("env")):
        name = text(variable.get("name"))
        if "valueFrom" in variable:
            variables[name] = environ[name]
        else:
            variables[name] = _expand(text(variable.get("value")), variables)
    return variables


def _expand(template: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` filled in as Kubernetes does: unknown names stay as they are, ``$$`` is a dollar sign."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else variables.get(match[2], match[0])

    return _REFERENCE.sub(value, template)
