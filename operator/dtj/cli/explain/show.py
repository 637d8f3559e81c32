"""Prints what ``dtj explain`` simulates: sections to read, or the objects themselves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from dtj.api.json import JsonObject, dig, object_at
from dtj.api.kueue import is_dispatched, other_controller, priority_class
from dtj.api.names import Label
from dtj.api.spec import Gang
from dtj.api.strategies import Role
from dtj.cli.common.console import Console
from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.objects import as_json
from dtj.cli.common.terminal import say, write
from dtj.cli.common.yaml_text import as_yaml
from dtj.cli.explain.render import explanation
from dtj.cli.explain.simulation import UID, Simulation, simulate
from dtj.client.checks import Manifest, check
from dtj.core.platform import Platform

_UID_WORDS: Final = f"# UID {UID} stands for the job's own UID, which the API server assigns.\n"


def show_objects(
    files: tuple[str, ...], *, output: str, role: Role | None, attempt: int, namespace: str, platform: Platform
) -> int:
    """Print what would be created for the jobs of these files. Returns the exit code."""
    checked = check(files, platform)
    for line in (*checked.notes, *checked.problems):
        say(line, err=True)
    if checked.problems:
        return Exit.USAGE
    for item in checked.manifests:
        if role is not None and item.spec.replicas(role) == 0:
            roles = ", ".join(item.spec.roles())
            say(f"{item.document.title}: --role: the job has no {role}; it has {roles}", err=True)
            return Exit.USAGE
    shown = [
        (item, simulate(item.body, platform, namespace=namespace, attempt=attempt, now=datetime.now(UTC)))
        for item in checked.manifests
    ]
    for item, simulation in shown:
        for line in _caveats(item, simulation):
            say(line, err=True)
    if output == "table":
        _print_tables(shown, role)
    else:
        found = [body for _, simulation in shown for body in simulation.objects if _is_wanted(body, role)]
        write(_UID_WORDS + as_yaml(found) if output == "yaml" else _as_json(found))
    return Exit.OK


def _caveats(manifest: Manifest, simulation: Simulation) -> list[str]:
    """How a cluster may differ from the simulation, in one line each."""
    policy = manifest.spec.run_policy
    caveats = []
    manager = other_controller(manifest.job.raw_spec)
    if is_dispatched(manifest.job.raw_spec):
        caveats.append(
            f"managedBy is {manager}: our operator creates the Workload here, and the rest where MultiKueue runs it"
        )
    elif manager is not None:
        caveats.append(f"managedBy is {manager}: our operator creates nothing for this job")
    elif policy.suspend:
        caveats.append("runPolicy.suspend is true: nothing is created until it is false; then this")
    if simulation.gang is not None:
        how = "which your cluster may lack" if policy.scheduling and policy.scheduling.gang is not Gang.AUTO else ""
        words = how or "the first choice of gang Auto: your cluster may have another one, or none"
        caveats.append(f"runPolicy.scheduling: as on a cluster with {simulation.gang.gang}, {words}")
        if simulation.gang.gang is Gang.KUEUE and (name := priority_class(manifest.job.labels)):
            caveats.append(f"the cluster has the value of WorkloadPriorityClass {name}; spec.priority is 0 here")
    return [f"{manifest.document.title}: {line}" for line in caveats]


def _print_tables(shown: list[tuple[Manifest, Simulation]], role: Role | None) -> None:
    console = Console(highlight=False)
    for number, (item, simulation) in enumerate(shown):
        if number:
            console.print()
        if simulation.objects:
            width = console.width if console.is_terminal else None
            for line in explanation(simulation, item.spec, role=role, width=width):
                console.print(line, soft_wrap=True)


def _is_wanted(body: JsonObject, role: Role | None) -> bool:
    """All but the pods of other roles."""
    return role is None or body["kind"] != "Pod" or dig(body, "metadata", "labels", Label.ROLE) == role


def _as_json(found: list[JsonObject]) -> str:
    whole: JsonObject = {"apiVersion": "v1", "kind": "List", "items": [*found]}
    object_at(whole, "metadata")
    return as_json(whole, indent=2)
