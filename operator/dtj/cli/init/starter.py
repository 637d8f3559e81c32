"""What ``dtj init`` writes: a manifest and a script that belong together. Pure, but for reading our own package."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dtj import __version__
from dtj.api import names
from dtj.api.strategies import SINGLE_PROCESS, Strategy

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


class Unsuitable(Exception):
    """A style and a strategy that do not go together; the message says which do, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """A new project: ``manifest`` and ``script`` are the contents of the two files."""

    manifest: str
    script: str
    workers: int


def starter(*, name: str, strategy: Strategy, style: Style, workers: int | None) -> Starter:
    """A project of this style. ``workers`` is None for what suits the strategy. Raises Unsuitable."""
    suitable = _STRATEGIES[style]
    if strategy not in suitable:
        raise Unsuitable(f"style {style} does not go with {strategy}, but with {', '.join(suitable)}")
    if workers is None:
        workers = 1 if strategy in (*SINGLE_PROCESS, Strategy.TPU) else _SEVERAL
    from importlib.resources import files  # slow to import, and no Tab needs it

    script = files("dtj.cli.init").joinpath("starters", f"{style}.py").read_text(encoding="utf-8")
    if strategy is Strategy.PARAMETER_SERVER:
        script = script.replace(
            "import keras\nimport numpy as np\nimport tensorflow as tf\n",
            "import numpy as np\nimport tensorflow as tf\nimport tf_keras as keras  # ParameterServer needs this one\n",
        )
    return Starter(manifest=_manifest(name, strategy, style, workers), script=script, workers=workers)


def _manifest(name: str, strategy: Strategy, style: Style, workers: int) -> str:
    arguments = [*_ARGUMENTS[style], *(["--micro-batches=4"] if strategy is Strategy.PIPELINE else [])]
    return f"""\
# {name}: {_MEANING[style]}.
#   on this machine:  dtj run {MANIFEST}
#   on a cluster:     dtj run --cluster --code . {MANIFEST}
apiVersion: {names.API_VERSION}
kind: {names.KIND}
metadata:
  name: {name}
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
