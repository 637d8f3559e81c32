"""The program of a task of a sample, which is forked: the trainer, or with TEST_KIND=plain the file by itself.

Where the trainer drives, the weights at the end go to TEST_OUT; a script writes them itself.
"""

import os
import runpy
from typing import Any

import numpy as np

from dtj_trainer.pipeline_parallel import leader
from dtj_trainer.training import parameter_server, synchronous


def main() -> None:
    """Runs to the end of the process."""
    if os.environ["TEST_KIND"] == "plain":
        runpy.run_path("sample.py", run_name="__main__")
        return
    finish = synchronous.finish

    def keep(*args: Any, weights: Any, **kwargs: Any) -> None:
        np.savez(os.environ["TEST_OUT"], *weights)
        finish(*args, weights=weights, **kwargs)

    synchronous.finish = leader.finish = parameter_server.finish = keep
    runpy.run_module("dtj_trainer", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
