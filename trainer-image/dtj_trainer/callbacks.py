"""What a training of one's own takes to be seen: a callback for `fit`, and a function for other loops.

In an image that does not have the trainer, its file `progress.py` alone does the same: copy it.
"""

from dtj_trainer.metrics.progress import DTJCallback, report

__all__ = ["DTJCallback", "report"]
