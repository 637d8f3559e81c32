"""Starts TensorBoard, which lies in a folder of its own, the last in which the trainer's Python looks for modules.

It is installed as the command `tensorboard` of the trainer's environment.
"""

import sys
import warnings
from types import ModuleType

warnings.filterwarnings("ignore", message="pkg_resources")
if any("://" in argument for argument in sys.argv):
    from dtj_trainer.errors import TrainerError
    from dtj_trainer.object_store.log_folder import with_local_copies

    try:
        sys.argv[1:] = with_local_copies(sys.argv[1:])
    except TrainerError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
if not any("://" in argument for argument in sys.argv):
    # The mark by which it does without TensorFlow, of which it needs the file systems alone: 90 MB, not 550.
    sys.modules["tensorboard.compat.notf"] = ModuleType("tensorboard.compat.notf")

from tensorboard.main import run_main  # noqa: E402 - looks for the mark

run_main()
