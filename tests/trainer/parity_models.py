"""The models and the data of the table in `parity.py`: compiled models, and datasets of single examples."""

from parity_data import *  # noqa: F403
from parity_losses import *  # noqa: F403
from parity_metrics import *  # noqa: F403
from parity_optimizers import *  # noqa: F403
