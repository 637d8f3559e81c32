"""What a job ran with: arguments, variables, versions, machines and the command. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pydantic import JsonValue

from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.spec import JobSpec, Role
from dtj.cli.common.formatting import counted
from dtj.cli.report.evidence import Evidence, Setting
from dtj.cli.report.redaction import REDACTED
from dtj.core.pod_state import main_container


def configuration(evidence: Evidence) -> Iterator[Setting]:
    """Everything that is known, in the order in which it is shown. Values are as the evidence has them: cleaned."""
    spec = Job.from_object(evidence.job).spec
    if spec is not None:
        yield from _arguments(spec)
        yield from _environment(spec)
    yield from evidence.settings
    if not evidence.on_this_machine:  # of which a run has recorded the host
        yield from _nodes(evidence)


def _arguments(spec: JobSpec) -> Iterator[Setting]:
    """What is shown of the arguments of the container that trains, ``--epochs=3`` or ``--epochs 3``; of each role if
    they differ."""
    by_role: dict[Role, tuple[tuple[str, str], ...]] = {}
    for role in spec.roles():
        replica, container = spec.replica_specs.get(role), _container(spec, role)
        command = (replica.command if replica is not None else None) or _strings(container.get("command"))
        words = [*command, *((replica.args if replica is not None else None) or _strings(container.get("args")))]
        pairs = zip(words, [*words[1:], ""], strict=False)
        options = [
            (word.partition("=")[0], word.partition("=")[2] or following)
            for word, following in pairs
            if word.startswith("--")
        ]
        by_role[role] = (*options, *([("others", REDACTED)] if REDACTED in words else []))
    alike = len(set(by_role.values())) == 1
    for role, shown in list(by_role.items())[: 1 if alike else None]:
        yield from (Setting("Arguments" if alike else f"Arguments of {role}", *pair) for pair in shown)


def _environment(spec: JobSpec) -> Iterator[Setting]:
    """The names of the variables of the container that trains."""
    replicas = [(replica.env if replica is not None else None) or [] for replica in spec.replica_specs.values()]
    templates = [objects(_container(spec, role).get("env")) for role in spec.roles()]
    names = dict.fromkeys(text(variable.get("name")) for each in (*templates, *replicas) for variable in each)
    if names:
        yield Setting("Environment", "variables", ", ".join(names))


def _container(spec: JobSpec, role: Role) -> JsonObject:
    replica = spec.replica_specs.get(role)
    template = (replica.template if replica is not None else None) or spec.template or {}
    pod_spec = dig(template, "spec")
    return main_container(pod_spec if isinstance(pod_spec, dict) else {})


def _strings(value: JsonValue) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _nodes(evidence: Evidence) -> Iterator[Setting]:
    """Where the pods are, and what is known of the hardware there."""
    known = {text(node.get("name")): node for node in evidence.objects.get("nodes", ())}
    for node, pods in Counter(text(dig(pod, "spec", "nodeName")) for pod in evidence.pods).items():
        found = known.get(node, {})
        capacity = dig(found, "capacity")
        amounts = capacity if isinstance(capacity, dict) else {}
        words = [counted(pods, "pod"), *([f"{amounts['cpu']} CPUs"] if "cpu" in amounts else [])]
        words += [f"{amount} {name}" for name, amount in amounts.items() if "/" in name and amount not in ("0", 0)]
        words += [f"kubelet {version}"] if (version := text(found.get("kubeletVersion"))) else []
        if node:
            yield Setting("Nodes", node, ", ".join(words))
    for operator in evidence.objects.get("operator", ()):
        yield Setting("Versions", "operator", text(operator.get("version")))
