"""The training process of a DistributedTrainingJob.

One command, `python -m dtj_trainer`, is every replica of a job: it reads TF_CONFIG and the DTJ_* variables,
trains, checkpoints, resumes and reports. Importing this package, or any module that `__main__` needs to
reject a bad command line, must not import TensorFlow.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from dtj_trainer.version import __version__

if TYPE_CHECKING:
    from dtj_trainer.user_code.session import Session

__all__ = ["__version__", "session"]


def session() -> AbstractContextManager[Session]:
    """Makes a script's own training loop one that a job can stop, move and resume: `with session() as s: ...`.

    See `dtj_trainer.user_code.session`. To be entered before TensorFlow has computed anything.
    """
    from dtj_trainer.user_code.session import begin

    return begin()
