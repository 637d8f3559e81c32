"""The process that a task runs in, as each of its parts finds it. Must not import TensorFlow."""

from dataclasses import dataclass, field
from typing import ClassVar, Self

from dtj_launch.progress import ProgressStore
from dtj_trainer.config.parsing import Config
from dtj_trainer.process.signals import Termination
from dtj_trainer.process.startup_timer import Startup


@dataclass(frozen=True, kw_only=True)
class TaskContext:
    """This task, where its progress is shown, whether it was asked to stop, and how long it took to start."""

    config: Config
    progress_store: ProgressStore
    termination: Termination
    startup: Startup = field(default_factory=Startup)

    current: ClassVar[Self | None] = None
    """The one that runs the script of this process; None where Python itself does."""
