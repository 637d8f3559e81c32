"""``dtj explain``: what a manifest would make, and what a field of it means."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import click

from dtj.api import names
from dtj.api.json import JsonObject, dig, object_at
from dtj.api.names import Label
from dtj.api.spec import Gang, Role
from dtj.cli.common.choices import OneOf
from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.json_text import as_json
from dtj.cli.common.platform_option import platform_option
from dtj.cli.common.terminal import Console, say, write
from dtj.cli.common.yaml_text import as_yaml
from dtj.cli.explain.field_docs import NoSuchField, field_lines
from dtj.cli.explain.render import explanation
from dtj.cli.explain.simulation import UID, Rehearsal, rehearse
from dtj.client.checks import Manifest, check
from dtj.core.platform import Platform

_UID_WORDS: Final = f"# UID {UID} stands for that of the job, which the API server gives.\n"


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE...]", type=click.Path(allow_dash=True))
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "yaml", "json"]),
    default="table",
    show_default=True,
    help="Sections to read, or the objects themselves.",
)
@click.option("--role", type=OneOf(Role), help="Only the pods of this role; TF_CONFIG of each of them.")
@click.option("--attempt", type=click.IntRange(min=1), default=1, metavar="N", help="Pods of this attempt.")
@click.option("-n", "--namespace", metavar="NAME", help="The namespace of manifests that name none; else default.")
@platform_option
@click.option("--field", metavar="PATH", help="Instead: what a field means, such as spec.runPolicy.backoffLimit.")
def explain(
    files: tuple[str, ...],
    output: str,
    role: Role | None,
    attempt: int,
    namespace: str | None,
    platform: Platform,
    field: str | None,
) -> int:
    """Show what would be created for manifests, without a cluster.

    For each job of each FILE (- is standard input): pods and where they go, Service, claim and gang, TF_CONFIG and
    other variables, what starts again when a pod is lost, and all limits, defaults too. It is planned by the code
    that plans in the operator.

    Exit codes: 0 done, 2 bad input.
    """
    if field is not None:
        return _explain_field(field, files)
    if not files:
        raise click.UsageError("Missing argument 'FILE...', or --field PATH.")
    checked = check(files, platform)
    if checked.problems:
        for line in checked.problems:
            say(line, err=True)
        return Exit.USAGE
    for item in checked.manifests:
        if role is not None and item.spec.replicas(role) == 0:
            roles = ", ".join(item.spec.roles())
            say(f"{item.document.title}: --role: the job has no {role}; it has {roles}", err=True)
            return Exit.USAGE
    shown = [
        (item, rehearse(item.body, platform, namespace=namespace or "default", attempt=attempt, now=datetime.now(UTC)))
        for item in checked.manifests
    ]
    for item, rehearsal in shown:
        for line in _caveats(item, rehearsal):
            say(line, err=True)
    if output == "table":
        _print_tables(shown, role)
    else:
        found = [body for _, rehearsal in shown for body in rehearsal.objects if _is_wanted(body, role)]
        write(_UID_WORDS + as_yaml(found) if output == "yaml" else _as_json(found))
    return Exit.OK


def _explain_field(field: str, files: tuple[str, ...]) -> int:
    if files:
        raise click.UsageError("--field shows what a field means, and takes no FILE.")
    try:
        for line in field_lines(field, width=Console().width):
            say(line)
    except NoSuchField as error:
        say(f"--field: {error}", err=True)
        return Exit.USAGE
    return Exit.OK


def _caveats(manifest: Manifest, rehearsal: Rehearsal) -> list[str]:
    """What is not as it would be, or only as it may be, in one line each."""
    policy = manifest.spec.run_policy
    said = []
    if policy.managed_by not in (None, names.CONTROLLER):
        said.append(f"runPolicy.managedBy is {policy.managed_by}: our operator creates nothing for this job")
    elif policy.suspend:
        said.append("runPolicy.suspend is true: nothing is created before it is false; then this")
    if rehearsal.gang is not None:
        how = "which your cluster may lack" if policy.scheduling and policy.scheduling.gang is not Gang.AUTO else ""
        words = how or "the first choice of gang Auto: your cluster may have another one, or none"
        said.append(f"runPolicy.scheduling: as on a cluster with {rehearsal.gang.gang}, {words}")
    return [f"{manifest.document.title}: {line}" for line in said]


def _print_tables(shown: list[tuple[Manifest, Rehearsal]], role: Role | None) -> None:
    console = Console(highlight=False)
    for number, (item, rehearsal) in enumerate(shown):
        if number:
            console.print()
        if rehearsal.objects:
            width = console.width if console.is_terminal else None
            for line in explanation(rehearsal, item.spec, role=role, width=width):
                console.print(line, soft_wrap=True)


def _is_wanted(body: JsonObject, role: Role | None) -> bool:
    """All but the pods of other roles."""
    return role is None or body["kind"] != "Pod" or dig(body, "metadata", "labels", Label.ROLE) == role


def _as_json(found: list[JsonObject]) -> str:
    whole: JsonObject = {"apiVersion": "v1", "kind": "List", "items": [*found]}
    object_at(whole, "metadata")
    return as_json(whole, indent=2)
