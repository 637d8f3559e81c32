"""Keeps the operator's hands off jobs whose CRD drops the operator's record.

A TFJob's record is in a field that Kubeflow's own CRD does not have. Without it restarts are forgotten and counted
anew, so nothing is created or deleted until the CRD has the field again; a record that was stored is there then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

from dtj.api.form import Form
from dtj.kube.errors import ApiError
from dtj.kube.gateway import jobs_of
from dtj.kube.waiting import Backoff

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 10.0
"""Between two looks at a CRD that drops the record."""


class RecordGuard:
    """Knows whether the API server keeps the record of a job of ``form``."""

    def __init__(self, form: Form, keeps: Callable[[], Awaitable[bool]], on_return: Callable[[], None]) -> None:
        """``keeps`` asks the API server, and raises ApiError; ``on_return`` is called when the record is kept again."""
        self._form = form
        self._crd = jobs_of(form).crd
        self._keeps = keeps
        self._on_return = on_return
        self._doubt = asyncio.Event()
        self.dropped = False

    def doubt(self) -> None:
        """The answer to a write lacked the record."""
        if not self.dropped:
            self._dropped()

    async def know(self) -> None:
        """Ask until there is an answer: an API server publishes the schema of a CRD a moment after it serves it."""
        for delay in Backoff(base=0.5, cap=LOOK_SECONDS):
            if await self.look():
                return
            await asyncio.sleep(delay)

    async def look(self) -> bool:
        """Ask once, and say what has changed. Returns whether there was an answer."""
        try:
            keeps = await self._keeps()
        except ApiError as error:
            log.warning("whether the CRD %s keeps status.%s: %s", self._crd, self._form.recorded_in, error.message)
            return False
        if not keeps and not self.dropped:
            self._dropped()
        elif keeps and self.dropped:
            self.dropped = False
            log.info("the CRD %s keeps status.%s again", self._crd, self._form.recorded_in)
            self._on_return()
        return True

    def _dropped(self) -> None:
        self.dropped = True
        self._doubt.set()
        log.error(
            "the CRD %s drops status.%s, so nothing is done for its jobs: run helm upgrade with tfjob.crd.enabled=true",
            self._crd,
            self._form.recorded_in,
        )

    async def run(self) -> NoReturn:
        """Look until cancelled, while the record is dropped."""
        while True:
            if not self.dropped:
                await self._doubt.wait()
            self._doubt.clear()
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()
