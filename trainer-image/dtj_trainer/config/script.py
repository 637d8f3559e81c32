"""`--script`: which program a task runs in place of the trainer's own loop, by the command line.

Must not import TensorFlow, nor anything of the script's.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from dtj_trainer.config.cluster import Cluster
from dtj_trainer.config.options import Arguments, Option, Options, on_or_off, option
from dtj_trainer.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class ScriptOptions(Options):
    """What is said of a script."""

    title: ClassVar[str] = "your own script"

    script_name: str | None = option(
        "--script", parse=str, default=None, metavar="FILE", for_scripts=True,
        help="run this Python file, or module by its dotted name, instead of the trainer's own loop; everything after "
        "-- is an argument of the script",
    )  # fmt: skip
    keras_override: bool = option(
        "--keras-override", variable="DTJ_KERAS_OVERRIDE", parse=on_or_off, default=True, metavar="on|off",
        help="--script and sessions: whether fit, evaluate and predict of Keras 3 are adapted to several replicas; off "
        "leaves Keras as it is",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Script:
    """A Python file, or a module by its dotted name, and what it gets as its command line."""

    name: str
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    """Variables that stand for what our own command line says of the job."""
    seed: int | None = None
    """What random numbers begin with, on all tasks of a job and at every attempt; None: each process draws its own."""

    @property
    def path(self) -> Path | None:
        """The file; None for a module, which Python finds by itself."""
        return Path(self.name) if self.name.endswith(".py") or "/" in self.name else None


def find(args: Arguments, here: Cluster, options: Iterable[Option], *, seed: int | None) -> Script | None:
    """The script that is asked for.

    Args:
        here: the tasks that run it.
        options: all that there are.
        seed: the one that is asked for.

    Raises:
        UsageError: there are arguments for a script, and no script; or options that only the trainer's loop reads.
    """
    name = args.values(ScriptOptions)["script_name"]
    if name is None:
        if args.rest is not None:
            # Not which ones: a message gets into the job's status, and one of them may be a secret.
            raise UsageError("--: arguments for a script follow, but there is no --script; give one")
        return None
    if not name:
        raise UsageError("--script=: empty; give a Python file or the dotted name of a module")
    environ = {}
    for each in options:
        if each.flag not in args.texts:
            continue
        if each.variable is not None:
            environ[each.variable] = args.texts[each.flag]
        elif not each.for_scripts:
            raise UsageError(
                f"{args.sources[each.flag]}: only the trainer's own loop reads this, and --script={name} is run "
                f"in its place; leave it out, or give it to the script, after --"
            )
    return Script(name=name, arguments=args.rest or (), environ=environ, seed=_common_seed(args, here, seed))


def _common_seed(args: Arguments, here: Cluster, seed: int | None) -> int | None:
    """The one that is asked for; else one that all tasks of this job have in common, at every attempt, and no others.

    An elastic job keeps it with any number of members. A single task that is of no job has none.
    """
    if seed is not None:
        return seed
    uid = args.environ.get("DTJ_JOB_UID", "")
    if not uid and len(here.addresses) < 2:
        return None
    # Outside of a cluster nothing but the tasks' addresses tells jobs of the same name apart.
    addresses = () if uid else sorted(f"{task} {address}" for task, address in here.addresses.items())
    text = json.dumps([uid, args.environ.get("DTJ_JOB_NAME", ""), *addresses])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
