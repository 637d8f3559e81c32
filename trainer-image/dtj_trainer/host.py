"""What a script, or a session in it, finds of the process that it runs in. Must not import TensorFlow."""

from dataclasses import dataclass
from typing import ClassVar, Self

from dtj_trainer.config import Config
from dtj_trainer.progress import Board
from dtj_trainer.signals import Termination


@dataclass(frozen=True, kw_only=True)
class Host:
    """This task, where its progress is shown, and whether it was told to go."""

    config: Config
    board: Board
    termination: Termination

    current: ClassVar[Self | None] = None
    """The one that runs the script of this process; None where Python itself does."""
