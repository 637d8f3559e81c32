"""Starts TensorBoard, which lies in a folder beside the trainer's packages: among them, each TensorFlow would load it.

It is installed as the command `tensorboard` of the trainer's environment.
"""

import sys
import warnings
from pathlib import Path
from types import ModuleType

sys.path.append(str(Path(sys.prefix) / "tensorboard"))
warnings.filterwarnings("ignore", message="pkg_resources")
if not any("://" in argument for argument in sys.argv):
    # The mark by which it does without TensorFlow, of which it needs the file systems alone: 90 MB, not 550.
    sys.modules["tensorboard.compat.notf"] = ModuleType("tensorboard.compat.notf")

from tensorboard.main import run_main  # noqa: E402 - where it is found is known only now

run_main()
