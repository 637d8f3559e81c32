"""What a training of one's own takes to be seen: a callback for `fit`, and a function for other loops.

In an image without the trainer, `dtj_launch.progress` has the same: it comes with `pip install dtj-launch`.
"""

from dtj_launch.progress import DTJCallback, report

__all__ = ["DTJCallback", "report"]
