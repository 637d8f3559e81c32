"""Starts TensorBoard, which lies in a folder beside the trainer's packages: among them, each TensorFlow would load it.

It is installed as the command `tensorboard` of the trainer's environment.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(sys.prefix) / "tensorboard"))

from tensorboard.main import run_main

run_main()
