"""Writes checkpoints on a thread of their own, one after the other, while the training goes on."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from dtj_trainer.errors import NotSaved

log = logging.getLogger(__name__)

_PREVIOUS_SAVE_SECONDS = 60.0
"""How long a save waits for the one before."""
SAVE_SECONDS = 900.0
"""How long a save may take where the training waits for it."""


class BackgroundWriter:
    """The checkpoint that is being written, if there is one."""

    def __init__(self, directory: Path | None, *, warns_once: bool) -> None:
        """Args:
        directory: for the lines alone; None where nothing is written.
        warns_once: whether one line does for all failures in a row.
        """
        self._directory = directory
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoints")
        self._writing: tuple[int, Future[None]] | None = None
        self._late: int | None = None
        """The step whose checkpoint was waited for in vain."""
        self._warns_once = warns_once
        self._failed = False

    def begin(self, step: int, write: Callable[[], None]) -> None:
        """Has the checkpoint of this step written."""
        self._writing = step, self._pool.submit(write)

    def writes(self, step: int) -> bool:
        """Whether the checkpoint of this step is the last that was begun, and nobody has waited for its end."""
        return self._writing is not None and self._writing[0] == step

    def wait_for_previous(self, step: int, *, target: object, seconds: float | None) -> bool:
        """Waits for the checkpoint before that of `step`, once for each; says so if it is not written by then.

        Args:
            target: where it is written to.
            seconds: after which that gives up by itself, if it does.

        Returns:
            Whether it is written, or has failed, so that the next one can be.
        """
        if self._writing is None:
            return True
        writing, written = self._writing
        if written.done():
            return True
        if self._late == writing:
            return False
        seconds = _PREVIOUS_SAVE_SECONDS if seconds is None else min(seconds, _PREVIOUS_SAVE_SECONDS)
        try:
            written.exception(timeout=seconds)
        except TimeoutError:
            self._late = writing
            log.warning(
                f"step {step} is not saved: step {writing} is still being written to {target} after {seconds:g} s; "
                "the training goes on, and saves again when it is written"
            )
            return False
        return True

    def warn_if_it_fails(self) -> None:
        """Logs one line if what is being written cannot be: the training goes on."""
        if self._writing:
            self._writing[1].add_done_callback(self._warn)

    def finish(self) -> None:
        """Waits for what is being written, if anything is.

        Raises:
            NotSaved: the directory does not take it.
        """
        if self._writing is None:
            return
        step, writing = self._writing
        try:
            writing.result(timeout=SAVE_SECONDS)
        except TimeoutError:
            raise NotSaved(
                f"checkpoint directory {self._directory}: step {step} was not written within "
                f"{SAVE_SECONDS:g} s; check the volume"
            ) from None
        finally:
            self._writing = None

    def _warn(self, writing: Future[None]) -> None:
        error = writing.exception()
        if error and not (self._warns_once and self._failed):
            log.warning(f"{error}; the training goes on and tries again")
        self._failed = error is not None
