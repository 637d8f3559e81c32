"""`--script`: which program a task runs in place of the trainer's own loop, by the command line.

Must not import TensorFlow, nor anything of the script's.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dtj_trainer.config import options
from dtj_trainer.config.cluster import Cluster
from dtj_trainer.config.options import ParsedArgs
from dtj_trainer.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Script:
    """A Python file, or a module by its dotted name, and what it gets as its command line."""

    name: str
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    """Variables that stand for what our own command line says of the job."""
    seed: int | None = None
    """What random numbers begin with, on all tasks of an attempt; None: each process draws its own."""

    @property
    def path(self) -> Path | None:
        """The file; None for a module, which Python finds by itself."""
        return Path(self.name) if self.name.endswith(".py") or "/" in self.name else None


def find(args: ParsedArgs, here: Cluster) -> Script | None:
    """The script that is asked for.

    Args:
        here: the tasks that run it.

    Raises:
        UsageError: there are arguments for a script, and no script; or options that only the trainer's loop reads.
    """
    name = args.value(options.SCRIPT)
    if name is None:
        if args.rest is not None:
            # Not which ones: a message gets into the job's status, and one of them may be a secret.
            raise UsageError("--: arguments for a script follow, but there is no --script; give one")
        return None
    if not name:
        raise UsageError("--script=: empty; give a Python file or the dotted name of a module")
    # What has a variable is handed on by it; these are for all scripts, a session in one, or its start gate.
    read = (options.SCRIPT, options.SEED, options.START_TIMEOUT, options.LOGICAL_CPUS, options.PROGRESS_EVERY)
    for group in options.GROUPS.values():
        for option in group:
            if option.flag in args.arguments and option.variable is None and option not in read:
                raise UsageError(
                    f"{args.source(option)}: only the trainer's own loop reads this, and --script={name} is run "
                    f"in its place; leave it out, or give it to the script, after --"
                )
    return Script(name=name, arguments=args.rest or (), environ=_variables(args), seed=_seed(args, here))


def _seed(args: ParsedArgs, here: Cluster) -> int | None:
    """The one that is asked for; else one that the tasks of this attempt have in common, and no others."""
    if args.source(options.SEED) is not None:
        return args.value(options.SEED)
    if len(here.addresses) < 2:
        return None
    known = [args.environ.get(name, "") for name in ("DTJ_JOB_UID", "DTJ_JOB_NAME", "DTJ_ATTEMPT")]
    text = json.dumps([*known, *sorted(f"{task} {address}" for task, address in here.addresses.items())])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def strategy(args: ParsedArgs, here: Cluster) -> str:
    """The job's strategy, else the one that TF_CONFIG looks like: a script may know it without telling us."""
    if args.source(options.STRATEGY) is not None:
        return args.value(options.STRATEGY)
    return here.likely_strategy or options.STRATEGY.default


def _variables(args: ParsedArgs) -> dict[str, str]:
    return {
        option.variable: args.arguments[option.flag]
        for group in options.GROUPS.values()
        for option in group
        if option.variable is not None and option.flag in args.arguments
    }
