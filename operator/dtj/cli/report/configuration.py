"""What a job ran with: arguments, versions, machines and the command. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from pydantic import JsonValue

from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.spec import JobSpec, Role
from dtj.cli.common.formatting import counted
from dtj.cli.report.evidence import Evidence, Setting
from dtj.core.pod_state import main_container

ARGUMENTS: Final = "Arguments"
JOB: Final = "Job"
MAX_VALUE: Final = 300
"""Characters of a value that are shown; the whole spec is on the page, too."""


def configuration(evidence: Evidence) -> tuple[Setting, ...]:
    """Everything that is known, in the order in which it is shown. Values are as the evidence has them: cleaned."""
    job = Job.from_object(evidence.job)
    found = [*_arguments(job.spec), *_environment(job.spec), *_job(job.spec), *evidence.settings, *_nodes(evidence)]
    return tuple(
        Setting(each.group, each.name, each.value if len(each.value) <= MAX_VALUE else f"{each.value[:MAX_VALUE]} …")
        for each in found
    )


def _job(spec: JobSpec | None) -> Iterator[Setting]:
    if spec is None:
        return
    yield Setting(JOB, "strategy", str(spec.strategy))
    for role in spec.roles():
        yield Setting(JOB, str(role), str(spec.replicas(role)))


def _arguments(spec: JobSpec | None) -> Iterator[Setting]:
    """What the container that trains is started with; of each role if they differ."""
    by_role = {role: tuple(_words(spec, role)) for role in spec.roles()} if spec is not None else {}
    alike = len(set(by_role.values())) <= 1
    for role, words in by_role.items():
        yield from (Setting(ARGUMENTS if alike else f"{ARGUMENTS} of {role}", *pair) for pair in words)
        if alike:
            return


def _environment(spec: JobSpec | None) -> Iterator[Setting]:
    """The variables of the container that trains; one that roles set to several values has them all."""
    values: dict[str, dict[str, None]] = {}
    for role in spec.roles() if spec is not None else ():
        assert spec is not None
        replica = spec.replica_specs.get(role)
        own = (replica.env if replica is not None else None) or []
        for variable in (*objects(_container(spec, role).get("env")), *own):
            values.setdefault(text(variable.get("name")), {})[text(variable.get("value"), "from an object")] = None
    for name, given in values.items():
        yield Setting("Environment", name, " or ".join(given))


def _container(spec: JobSpec, role: Role) -> JsonObject:
    replica = spec.replica_specs.get(role)
    template = (replica.template if replica is not None else None) or spec.template or {}
    pod_spec = dig(template, "spec")
    return main_container(pod_spec if isinstance(pod_spec, dict) else {})


def _words(spec: JobSpec, role: Role) -> Iterator[tuple[str, str]]:
    replica, container = spec.replica_specs.get(role), _container(spec, role)
    command = (replica.command if replica is not None else None) or _strings(container.get("command"))
    args = (replica.args if replica is not None else None) or _strings(container.get("args"))
    if command:
        yield "command", " ".join(command)
    yield from _pairs(args)


def _strings(value: JsonValue) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    """``--epochs=3`` and ``--epochs 3`` as name and value; all other words under one name."""
    others: list[str] = []
    place = 0
    while place < len(words):
        word, following = words[place], words[place + 1] if place + 1 < len(words) else ""
        place += 1
        if not word.startswith("--") or word == "--":
            others.append(word)
        elif "=" in word:
            name, _, value = word.partition("=")
            yield name, value
        elif following and not following.startswith("-") and not following.startswith("("):
            yield word, following
            place += 1
        else:
            yield word, "set"
    if others:
        yield "other", " ".join(dict.fromkeys(others))


def _nodes(evidence: Evidence) -> Iterator[Setting]:
    """Where the pods are, if that is a cluster: a run on this machine has recorded its host."""
    if evidence.on_this_machine:
        return
    nodes = Counter(text(dig(pod, "spec", "nodeName")) for pod in evidence.pods)
    for node, pods in nodes.items():
        if node:
            yield Setting("Nodes", node, ", ".join(filter(None, (counted(pods, "pod"), _machine(evidence, node)))))
    for operator in evidence.objects.get("operator", ()):
        yield Setting("Versions", "operator", text(operator.get("version")))


def _machine(evidence: Evidence, node: str) -> str:
    """What is known of a node's hardware."""
    found: JsonObject = next((each for each in evidence.objects.get("nodes", ()) if each.get("name") == node), {})
    capacity = dig(found, "capacity")
    known = capacity if isinstance(capacity, dict) else {}
    devices = [f"{value} {name}" for name, value in known.items() if "/" in name and value not in ("0", 0)]
    cpus = [f"{known['cpu']} CPUs"] if "cpu" in known else []
    kubelet = text(found.get("kubeletVersion"))
    return ", ".join([*cpus, *devices, *([f"kubelet {kubelet}"] if kubelet else [])])
