"""Arguments and options that several commands have: kinds of values, the cluster, the name of a job, runs, code.

The client is imported when it is used: ``dtj --help`` and a Tab do without it.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from dtj.api import names
from dtj.api.printable import one_line
from dtj.api.tfjob import names as tfjob

if TYPE_CHECKING:
    from dtj.client import AsyncClient
    from dtj.core.platform import Platform


class WholeNumber(click.IntRange):
    """A range of whole numbers. Click calls any other text "not a valid integer range"."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number. Fails for other texts and for numbers out of range."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f'"{value}" is not a whole number {self._limits()}', param, ctx)

    def _limits(self) -> str:
        return f"of at least {self.min}" if self.max is None else f"from {self.min} to {self.max}"


class NamespaceName(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """The name of a namespace. Any other text would become a part of a host name or of the path of a request."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, unchanged."""
        if problem := names.namespace_problem(value):
            self.fail(problem, param, ctx)
        return value


CODE: Final = "--code"

_UNITS: Final = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|[dhms])")


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """Becomes a number of seconds, more than 0, or where ``zero`` is allowed, at least 0. A bare number is seconds."""

    name = "duration"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        seconds = _seconds(value)
        if seconds is None or (seconds == 0 and not self._zero):
            self.fail(f'"{value}" is not a duration: write 30s, 5m or 1h30m', param, ctx)
        return seconds


def _seconds(text: str) -> float | None:
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        return float(text)
    if not re.fullmatch(rf"(?:{_PART.pattern})+", text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


E = TypeVar("E", bound=StrEnum)


class OneOf(click.Choice[E]):
    """A choice among an enumeration's values; :class:`click.Choice` alone would take its members' names."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return str(choice)


F = TypeVar("F", bound=Callable[..., Any])


def platform_option(command: F) -> F:
    """Give a command ``--profiles FILE``, and as ``platform`` the cluster whose operator has them."""
    return click.option(
        "--profiles",
        "platform",
        type=click.Path(path_type=Path),
        callback=_platform,
        metavar="FILE",
        help="Accelerator profiles in addition to the shipped ones: a list, or the values of the operator's chart.",
    )(command)


def _platform(context: click.Context, parameter: click.Parameter, value: Path | None) -> Platform | None:
    if context.resilient_parsing:  # a Tab: nothing is checked
        return None
    from dtj.core.platform import Platform
    from dtj.engine.profile_file import ProfilesError, profiles

    try:
        return Platform(profiles=profiles(value))
    except ProfilesError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def code_option(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command ``--code DIR`` as ``code``."""
    return click.option(
        CODE,
        metavar="DIR",
        help="Send the files of this directory along, in a ConfigMap; the pods find them in their working directory. "
        "DIR/.dtjignore excludes files, as a .gitignore does.",
    )(command)


# -- the cluster ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Which cluster and namespace a person means; None is what kubectl would take too."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None

    async def connect(self) -> AsyncClient:
        """A client for it. Raises ConfigError."""
        from dtj.client import AsyncClient

        return await AsyncClient.connect(namespace=self.namespace, context=self.context, kubeconfig=self.kubeconfig)


def place_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command kubectl's options for the cluster, and what they mean together as its argument ``place``."""

    @click.option(
        "-n",
        "--namespace",
        type=NamespaceName(),
        metavar="NAME",
        help="The namespace. Default: that of the kubeconfig's context.",
    )
    @click.option("--context", metavar="NAME", help="The context of the kubeconfig.")
    @click.option("--kubeconfig", metavar="FILE", help="The kubeconfig. Default: $KUBECONFIG or ~/.kube/config.")
    @functools.wraps(command)
    def placed(*args: Any, namespace: str | None, context: str | None, kubeconfig: str | None, **kwargs: Any) -> int:
        return command(*args, place=Place(namespace, context, kubeconfig), **kwargs)

    return placed


# -- the name of a job ------------------------------------------------------------------------------------------

PATIENCE: Final = 2.0
"""Seconds that a person who presses Tab waits for a cluster at most."""

_TFJOBS: Final = (tfjob.SINGULAR, tfjob.PLURAL, f"{tfjob.SINGULAR}.{tfjob.GROUP}", f"{tfjob.PLURAL}.{tfjob.GROUP}")
_KINDS: Final = (
    names.SHORT_NAME,
    names.SINGULAR,
    names.PLURAL,
    f"{names.SINGULAR}.{names.GROUP}",
    f"{names.PLURAL}.{names.GROUP}",
)
_LIKE_A_JOB: Final = re.compile(r"[a-z][a-z0-9-]*")
"""A name that a job may have. A file with an ending has another."""


class JobName(click.ParamType):  # type: ignore[type-arg]  # not generic in the oldest click that we take
    """The name of a job: ``digits``, or as kubectl prints it, ``distributedtrainingjob.training.dtj.dev/digits``.

    With ``tfjobs``, it may be that of a TFJob, which becomes ``tfjob/mnist``.
    """

    name = "job"

    def __init__(self, *, tfjobs: bool = False) -> None:
        self._tfjobs = tfjobs

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        kind, slash, name = value.rpartition("/")
        is_tfjob = self._tfjobs and kind in _TFJOBS
        if slash and not is_tfjob and kind not in _KINDS:
            self.fail(f'"{value}" is of another kind: write NAME or {names.SHORT_NAME}/NAME', param, ctx)
        if problem := names.segment_problem(name):
            self.fail(problem, param, ctx)
        if name != one_line(name):
            self.fail(f"{name!a} cannot be the name of a job: use lower-case letters, digits and '-'", param, ctx)
        return f"{tfjob.SINGULAR}/{name}" if is_tfjob else name

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        kind, slash, _ = incomplete.rpartition("/")
        taken = ctx.params.get(param.name or "")
        others = taken if isinstance(taken, tuple) else ()
        found = []
        for name in _job_names(_place(ctx)):
            of_kind, _, plain = name.rpartition("/")  # of a TFJob, or none
            fits = (kind in _TFJOBS) == bool(of_kind) if slash else True
            offered = f"{kind}/{plain}" if slash else name
            # A shell takes a line for a candidate, and a terminal shows it: names of jobs are plain, a server's may not
            # be.
            plainly = name == one_line(name) and (self._tfjobs or not of_kind)
            if fits and plainly and offered.startswith(incomplete) and name not in others:
                found.append(CompletionItem(offered))
        return found


@dataclass(frozen=True, slots=True)
class OnCluster:
    """A job on the cluster, by the name that :class:`JobName` makes of it."""

    name: str


class FileOrJob(JobName):
    """A file, as a text; or where there is no such file, the name of a job, as :class:`OnCluster`."""

    name = "file"

    def __init__(self) -> None:
        super().__init__(tfjobs=True)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str | OnCluster:  # type: ignore[override]
        kind, slash, name = value.rpartition("/")
        is_name = kind in (*_TFJOBS, *_KINDS) if slash else _LIKE_A_JOB.fullmatch(name) is not None
        return OnCluster(super().convert(value, param, ctx)) if is_name and not os.path.exists(value) else value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]  # without a cluster: most explain what is not there yet


def _place(context: click.Context) -> Place:
    """The cluster that the options typed so far select."""
    given = context.params
    return Place(given.get("namespace"), given.get("context"), given.get("kubeconfig"))


def _job_names(place: Place) -> list[str]:
    """The jobs there; none if the cluster does not answer in time: after a Tab there is no place for an error."""
    import asyncio

    from dtj.client import ApiError, ConfigError

    with suppress(ApiError, ConfigError, OSError, TimeoutError):
        return asyncio.run(asyncio.wait_for(_ask(place), PATIENCE))
    return []


async def _ask(place: Place) -> list[str]:
    from dtj.client.job_names import typed

    async with await place.connect() as client:
        return [typed(job) for job in await client.list(tfjobs=True)]


# -- runs on this machine ---------------------------------------------------------------------------------------

RUNS: Final = Path("dtj-runs")
"""Where runs are kept by default."""


def runs_option(words: str) -> Callable[[F], F]:
    """Give a command ``--output-dir DIR``, as ``runs``, with ``words`` as its help."""
    return click.option(
        "--output-dir",
        "runs",
        type=click.Path(path_type=Path),
        default=RUNS,
        show_default=True,
        metavar="DIR",
        help=words,
    )


def complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The jobs that have a run here; a shell also completes folders."""
    from dtj.local.run_directory import jobs_with_runs

    names = [name for name in jobs_with_runs(context.params.get("runs") or RUNS) if name.startswith(incomplete)]
    return [*map(CompletionItem, names), *([] if names else [CompletionItem(incomplete, type="dir")])]


def where_runs_are(words: str) -> str:
    """These words with a job that has runs in the folder where runs are by default, as an addition to a message; empty
    without any."""
    from dtj.local.run_directory import jobs_with_runs

    return "".join(f"{words} --run {name}" for name in jobs_with_runs(RUNS)[:1])


def check_one_is_given(name: str | None, run: str | None, place: Place) -> None:
    """Raises UsageError where both a job and a run are given, or neither, or a run and where a cluster is."""
    if (name is None) == (run is None):
        raise click.UsageError(
            f"give the name of a job on the cluster, or a run on this machine with --run{where_runs_are(', such as')}"
        )
    if run is not None and place != Place():
        raise click.UsageError("--run means a run on this machine: leave out --namespace, --context and --kubeconfig")
