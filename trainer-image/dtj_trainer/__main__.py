"""`python -m dtj_trainer`: one replica of a job, from its first line to its exit code.

`--self-check` as the only argument trains nothing, and says whether the installed libraries fit: see `self_check`.
"""

import io
import os
import sys

from dtj_trainer.config.parsing import parse
from dtj_trainer.errors import TrainerError
from dtj_trainer.process import logs
from dtj_trainer.process.ending import ProcessEnd, end_with, leave
from dtj_trainer.process.sigterm import Termination
from dtj_trainer.roles import launch


def check(arguments: list[str]) -> dict[str, float | bool]:
    """Ends the process where the command line or the environment cannot be, as `main` would; for the launcher.

    Returns:
        start_timeout, how long this task waits for its peers, in seconds; and preload, as `Config.preloads` says.
    """
    logs.configure_early(os.environ)
    try:
        config = parse(arguments, os.environ)
    except TrainerError as error:
        end_with(error)
    return {"start_timeout": config.start_timeout, "preload": config.preloads}


def main() -> None:
    """Runs to the end of the process."""
    if sys.argv[1:] == ["--self-check"]:
        from dtj_trainer import self_check

        sys.exit(self_check.main())
    logs.configure_early(os.environ)
    termination = Termination(leave=leave)
    termination.listen()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A log that is read through a pipe shows each line when it is written.
        sys.stdout.reconfigure(line_buffering=True)
    with ProcessEnd():
        config = parse(sys.argv[1:], os.environ)
        logs.configure(config.log, os.environ, task=config.cluster.task)
        launch(config, termination)


if __name__ == "__main__":
    main()
