"""SIGTERM and SIGINT, from the first line of the process to the last.

Three facts shape this module. As PID 1 a process without a handler does not notice SIGTERM at all. While the
main thread waits inside TensorFlow (for peers, in a collective) no Python handler runs. And TensorFlow's
coordination service puts a handler of its own over ours, which swallows the signal. So the signals are blocked
in every thread, where no handler can get at them, and one thread takes them from the kernel.

Must not import TensorFlow: it has to be in place before any thread of TensorFlow's starts.
"""

import signal
import threading
from collections.abc import Callable

from dtj_trainer.exitcodes import ExitCode

_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


class Termination:
    """Whether this process was told to go.

    While there is something to save (`saves` is set) the first signal is a request, which the training loop
    answers by saving and leaving; otherwise, and at the second signal, the process ends at once.
    """

    def __init__(self, *, leave: Callable[[int], object]) -> None:
        self.requested = False
        self.saves = False
        self._leave = leave

    def listen(self) -> None:
        """Takes the signals over. To be called by the main thread, before any other thread starts."""
        for number in _SIGNALS:
            signal.signal(number, self._unreachable)
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        threading.Thread(target=self._take, name="signals", daemon=True).start()

    def _take(self) -> None:
        while True:
            number = signal.sigwait(_SIGNALS)
            name = signal.Signals(number).name
            if self.requested or not self.saves:
                _say(f"{name}: leaving at once")
                self._leave(ExitCode.TERMINATED)
            self.requested = True
            _say(f"{name}: saving a checkpoint, then leaving")

    def _unreachable(self, number: int, _: object) -> None:
        """PID 1 only receives what it has a handler for; blocked signals still go to `_take`."""


def _say(line: str) -> None:
    """A line in one piece: the main thread may print at the same time."""
    print(f"{line}\n", end="", flush=True)
