"""SIGTERM and SIGINT, from the first line of the process to the last.

Three facts shape this module. As PID 1 a process without a handler does not notice SIGTERM at all. While the
main thread waits inside TensorFlow (for peers, in a collective) no Python handler runs. And TensorFlow's
coordination service puts a handler of its own over ours, which swallows the signal. So the signals are blocked
in every thread, where no handler can get at them, and one thread takes them from the kernel.

A script of the user's cannot be treated so: what it starts would inherit the block, and could not be ended by
SIGTERM any more; and a handler of its own would never run. There the signals are open (`listen_openly`): C code
writes their numbers into a pipe, whatever the main thread is doing, and a thread reads them there.

While TensorFlow connects to its peers it keeps the interpreter's lock, and then no thread of Python's runs either. In
that time the launcher ends the process: see `dtj_trainer.process.watchdog.unattended`.

Must not import TensorFlow: it has to be in place before any thread of TensorFlow's starts.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dtj_trainer.errors import ExitCode

log = logging.getLogger(__name__)

_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


class Termination:
    """Whether this process was asked to stop.

    While there is something to save (`saves` is set) the first signal is a request, which the training loop
    answers by saving and leaving; otherwise, and at the second signal, the process ends at once, or after a first one
    when the file is complete that it is `writing`.
    """

    def __init__(self, *, leave: Callable[[int], object]) -> None:
        self.requested = False
        self.saves = False
        self._leave = leave
        self._writes = self._leaves = False
        self._thread: threading.Thread | None = None
        self._pipe = -1
        self._held = threading.local()

    def listen(self) -> None:
        """Takes the signals over. To be called by the main thread, before any other thread starts."""
        for number in _SIGNALS:
            signal.signal(number, self._unreachable)
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self._thread = threading.Thread(target=self._take, name="signals", daemon=True)
        self._thread.start()

    def listen_openly(self) -> None:
        """Takes SIGTERM over unless a script puts a handler of its own over ours; SIGINT is Python's again.

        To be called by the main thread, which executes the script.
        """
        if self._thread is not None:
            thread, self._thread = self._thread, None
            assert thread.ident is not None  # it was started
            signal.pthread_kill(thread.ident, signal.SIGTERM)
            thread.join()
        if self._pipe < 0:
            reader, self._pipe = os.pipe()
            os.set_blocking(self._pipe, False)
            os.register_at_fork(before=self._hold, after_in_parent=self._release, after_in_child=self._forget)
            threading.Thread(target=self._read, args=(reader,), name="signals", daemon=True).start()
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._open)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def take_back(self) -> None:
        """Puts the handler of SIGTERM, ours or the script's own, over TensorFlow's, which comes with a cluster.

        Python knows nothing of that. Only the main thread can do it.
        """
        handler = signal.getsignal(signal.SIGTERM)
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Within this, a file is replaced that the next start needs: half of it would be worse than none."""
        self._writes = True
        try:
            if self._leaves:  # asked for before this was seen
                self._leave(ExitCode.TERMINATED)
            yield
        finally:
            self._writes = False
            if self._leaves:
                self._leave(ExitCode.TERMINATED)

    def _take(self) -> None:
        while True:
            number = signal.sigwait(_SIGNALS)
            if self._thread is None:
                return
            self._on_request(number)

    def _read(self, reader: int) -> None:
        while True:
            for number in os.read(reader, 16):
                if number == signal.SIGTERM and signal.getsignal(number) == self._open:
                    self._on_request(number)

    def _on_request(self, number: int) -> None:
        name = signal.Signals(number).name
        if not self.requested and not self.saves:
            # In this order: either `writing` sees that it has to leave, or this that nothing is written any more.
            self.requested = self._leaves = True
            if self._writes:
                log.info(f"{name}: leaving when the file that is being written is complete")
                return
        if self.requested or not self.saves:
            log.info(f"{name}: leaving at once")
            self._leave(ExitCode.TERMINATED)
        self.requested = True
        log.info(f"{name}: saving a checkpoint, then leaving")

    def _unreachable(self, number: int, _: object) -> None:
        """PID 1 only receives what it has a handler for; blocked signals still go to `_take`."""

    def _open(self, number: int, _: object) -> None:
        """`_read` has it from the pipe already, unless the script, as asyncio does, has put another in its place.

        A handler answers nothing itself: it may run in the middle of a print, and then must not print.
        """
        if signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False) != self._pipe:
            os.write(self._pipe, bytes([number]))

    def _hold(self) -> None:
        """A child shares the pipe until it has forgotten it; a signal before that would be taken for this task's."""
        self._held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)

    def _release(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._held.mask)

    def _forget(self) -> None:
        """A process that the script forks is not this task: SIGTERM ends it, and nobody here hears of it."""
        signal.set_wakeup_fd(-1)
        if signal.getsignal(signal.SIGTERM) == self._open:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._release()
