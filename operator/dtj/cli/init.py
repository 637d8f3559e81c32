"""``dtj init``: a manifest and a script that belong together, to start from."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

import click

from dtj import __version__
from dtj.api import names
from dtj.api.names import job_name_from
from dtj.api.strategies import MAX_REPLICAS, SINGLE_PROCESS, Strategy
from dtj.cli.common.formatting import columns, counted
from dtj.cli.common.options import OneOf, WholeNumber
from dtj.cli.common.terminal import Exit, say

MANIFEST: Final = "job.yaml"
SCRIPT: Final = "train.py"


class Style(StrEnum):
    """The ways to bring one's own training, from the most help to the least change."""

    MODEL = "model"
    SESSION = "session"
    SCRIPT = "script"


_STRATEGIES: Final = {
    Style.MODEL: tuple(Strategy),
    Style.SESSION: (*SINGLE_PROCESS, Strategy.MULTI_WORKER_MIRRORED, Strategy.TPU),
    Style.SCRIPT: (Strategy.ONE_DEVICE, Strategy.MULTI_WORKER_MIRRORED),
}
"""What the script of a style can run under."""

_MEANING: Final = {
    Style.MODEL: "your own model and data, which the trainer drives",
    Style.SESSION: "your own training loop, which a job can stop and resume",
    Style.SCRIPT: "your own script",
}
_ARGUMENTS: Final = {
    Style.MODEL: ["--model=train:model", "--data=train:data", "--epochs=10"],
    Style.SESSION: ["--script=train.py"],
    Style.SCRIPT: ["--script=train.py"],
}
_SEVERAL: Final = 2
"""Workers of a new job under a strategy for several."""


@click.command("init")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--strategy",
    type=OneOf(Strategy),
    default=str(Strategy.MULTI_WORKER_MIRRORED),
    show_default=True,
    help="How the workers work together.",
)
@click.option(
    "--workers",
    type=WholeNumber(1, MAX_REPLICAS),
    metavar="N",
    help="Number of workers. Default: what suits the strategy.",
)
@click.option(
    "--style",
    type=OneOf(Style),
    default=str(Style.MODEL),
    show_default=True,
    help="model: two functions, and the trainer runs the loop; session: your own loop with a few added lines; "
    "script: any script.",
)
@click.option("--name", metavar="NAME", help="Name of the job. Default: the name of the directory.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def init(directory: Path, strategy: Strategy, workers: int | None, style: Style, name: str | None, force: bool) -> int:
    """Write a manifest and a training script to start from.

    DIR gets job.yaml and train.py, which run as they are.

    Exit codes: 0 done, 2 bad input.
    """
    import yaml

    from dtj.api.validation import validate

    if strategy not in _STRATEGIES[style]:
        say(f"style {style} does not go with {strategy}, but with {', '.join(_STRATEGIES[style])}", err=True)
        return Exit.USAGE
    workers = workers or (1 if strategy in (*SINGLE_PROCESS, Strategy.TPU) else _SEVERAL)
    job_name = name or job_name_from(Path(os.path.abspath(directory)).name)  # also of `..`
    # The name is written into the manifest unchecked: an invalid one could change the manifest's structure.
    plain = yaml.safe_load(_manifest("plain", strategy, style, workers))
    found = validate({**plain, "metadata": {"name": job_name}})
    present = [directory / file for file in (MANIFEST, SCRIPT) if (directory / file).exists()]
    if found or (present and not force):
        for violation in found:
            named = f'--name "{name}"' if name and violation.field == "metadata.name" else violation.field
            say(f"{named}: {violation.message}", err=True)
        for path in () if found else present:
            say(f"{path}: already exists: use --force to overwrite it, or name another directory", err=True)
        return Exit.USAGE
    files = {MANIFEST: _manifest(job_name, strategy, style, workers), SCRIPT: _script(style, strategy)}
    drafts = {directory / file: directory / f".{file}.new" for file in files}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, draft in drafts.items():
            draft.write_text(files[path.name], encoding="utf-8")
        for path, draft in drafts.items():
            draft.replace(path)
    except OSError as error:
        for draft in drafts.values():
            with suppress(OSError):
                draft.unlink()
        say(f"{error.filename or directory}: cannot be written: {error.strerror}", err=True)
        return Exit.USAGE
    _say_next(directory, workers)
    return Exit.OK


def _say_next(directory: Path, workers: int) -> None:
    say(f"Wrote {directory / MANIFEST} and {directory / SCRIPT}. Next:")
    say("")
    if directory.absolute() != Path.cwd():
        say(f"  cd {shlex.quote(str(directory))}")
    commands = (
        (f"dtj run {MANIFEST}", f"train here, {counted(workers, 'worker')}"),
        (f"dtj explain {MANIFEST}", "what a cluster would be asked for"),
        (f"dtj run --cluster --code . {MANIFEST}", "train on a cluster"),
    )
    for line in columns(commands, gap=4):
        say(f"  {line}")


def _script(style: Style, strategy: Strategy) -> str:
    from importlib.resources import files  # slow to import, and no Tab needs it

    script = files("dtj.cli").joinpath("starters", f"{style}.py").read_text(encoding="utf-8")
    if strategy is Strategy.PARAMETER_SERVER:
        script = script.replace(
            "import keras\nimport numpy as np\nimport tensorflow as tf\n",
            "import numpy as np\nimport tensorflow as tf\nimport tf_keras as keras  # ParameterServer needs this one\n",
        )
    return script


def _manifest(name: str, strategy: Strategy, style: Style, workers: int) -> str:
    import yaml

    # What YAML reads as something else, such as a name "yes", is quoted; "y" and "n" are for Kubernetes' reader alone.
    written = name if yaml.safe_load(name) == name and name not in ("y", "n") else json.dumps(name)
    arguments = [*_ARGUMENTS[style], *(["--micro-batches=4"] if strategy is Strategy.PIPELINE else [])]
    return f"""\
# {name}: {_MEANING[style]}.
#   on this machine:  dtj run {MANIFEST}
#   on a cluster:     dtj run --cluster --code . {MANIFEST}
apiVersion: {names.API_VERSION}
kind: {names.KIND}
metadata:
  name: {written}
spec:
  # Decides how the pods work together; docs/strategies.md has all.
  strategy: {strategy}
  replicaSpecs:
{_roles(strategy, workers)}{_accelerator(strategy)}
  # With a volume that all pods can write to, an interrupted job resumes from its last checkpoint:
  # checkpoint:
  #   claimTemplate: {{spec: {{resources: {{requests: {{storage: 1Gi}}}}}}}}
  #   everySeconds: 60
  template:
    spec:
      containers:
      - name: trainer
        # TensorFlow and dtj_trainer. On this machine it is not pulled: the trainer's environment runs the script.
        image: {names.IMAGE_REGISTRY}/dtj-trainer:{__version__}{_IMAGES.get(strategy, "")}
        # {SCRIPT} comes into the pods by --code; or build an image on this one that has it in its working directory.
        args: [{", ".join(arguments)}]
        resources:
          requests: {{cpu: 500m, memory: 1Gi}}
"""


_IMAGES: Final = {Strategy.TPU: "-tpu"}


def _roles(strategy: Strategy, workers: int) -> str:
    worker = f"    worker:\n      replicas: {workers}\n"
    if strategy is not Strategy.PARAMETER_SERVER:
        return worker
    return f"    chief: {{}}  # hands out the steps\n{worker}    ps:  # holds the variables\n      replicas: 1\n"


def _accelerator(strategy: Strategy) -> str:
    if strategy is Strategy.TPU:
        return "  accelerator:\n    profile: tpu-v5e\n    topology: 2x2"
    return (
        "  # A GPU for each pod that trains; docs/accelerators.md has the profiles:\n"
        "  # accelerator: {profile: nvidia, count: 1}"
    )
