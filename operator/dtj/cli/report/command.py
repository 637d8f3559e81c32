"""``dtj report``: writes what is known of a job into one file, to be read by oneself or sent to others."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dtj.cli.common.connection import Place, place_options, with_client
from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.formatting import counted, short_number, shown_path
from dtj.cli.common.run_options import check_one_is_given, job_or_run
from dtj.cli.common.terminal import say
from dtj.cli.completion.command import JobName
from dtj.cli.report import cluster
from dtj.cli.report import run as local_run
from dtj.cli.report.bundle import files, packed, plain
from dtj.cli.report.evidence import Evidence
from dtj.cli.report.page import render_page
from dtj.cli.report.redaction import without_secrets
from dtj.cli.report.view import page_view
from dtj.client import AsyncClient
from dtj.local import run_directory
from dtj.local.run_directory import NoSuchRun

_ADVICE = "Look through the logs before you pass it on: programs may print secrets that nothing tells to be one."


@click.command()
@click.argument("name", type=JobName(), required=False)
@job_or_run
@click.option("--html", is_flag=True, help="One page that opens in any browser, instead of a bundle of files.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to; else dtj-report-NAME.tar.gz, or .html, in the current directory.",
)
@click.option(
    "--include-env",
    is_flag=True,
    help="Show values of environment variables and arguments, but for those whose names or shapes tell a secret.",
)
@place_options
def report(
    name: str | None,
    run: str | None,
    runs: Path,
    html: bool,
    output: Path | None,
    include_env: bool,
    place: Place,
) -> int:
    """Gather what is known of a job, as files or a page.

    Values of environment variables and arguments are left out, and so is what looks like a secret; the bundle's file
    INDEX says what could not be read. The page shows a timeline of attempts and pods, curves, events and the cause of a
    failure; it needs no server and no network.

    Exit codes: 0 done, 2 bad input, 4 the cluster refused or did not answer.
    """
    check_one_is_given(name, run, place)
    if run is None:
        assert name is not None
        return with_client(place, lambda client: _of_cluster(client, name, include_env, html=html, output=output))
    try:
        evidence = local_run.gather(run_directory.find(run, runs))
    except (NoSuchRun, local_run.NoManifest) as error:
        say(str(error), err=True)
        return Exit.USAGE
    return _write(without_secrets(evidence, include_env=include_env), html=html, output=output)


async def _of_cluster(client: AsyncClient, name: str, include_env: bool, *, html: bool, output: Path | None) -> int:
    evidence = await cluster.gather(client, name)
    return _write(without_secrets(evidence, include_env=include_env), html=html, output=output)


def _write(cleaned: Evidence, *, html: bool, output: Path | None) -> int:
    folder = f"dtj-report-{plain(cleaned.name)}"
    file = output or Path(f"{folder}.html" if html else f"{folder}.tar.gz")
    if html:
        content, what = render_page(page_view(cleaned)).encode(errors="replace"), "a page"
    else:
        contents = files(cleaned)
        content, what = packed(contents, folder=folder, at=cleaned.taken_at), counted(len(contents), "file")
    try:
        _replace(file, content)
    except OSError as error:
        say(f"--output: {file}: cannot be written: {error.strerror}; choose another place with -o", err=True)
        return Exit.USAGE
    shown = shown_path(file.absolute(), base=Path.cwd())
    say(f"Wrote {shown}: {what}, {short_number(len(content))} bytes.")
    if cleaned.unread:
        where = "its end" if html else "its INDEX"
        say(f"{counted(len(cleaned.unread), 'thing')} could not be read: {where} says which.")
    say(_ADVICE)
    return Exit.OK


def _replace(file: Path, content: bytes) -> None:
    """Put the whole file in its place, or leave what is there; for its owner alone, since logs may hold anything."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with open(draft, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
            opened.write(content)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
