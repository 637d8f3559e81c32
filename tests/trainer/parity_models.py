"""The models and the data of the table in `parity_cases.py`: compiled models, and datasets of single examples."""

from parity_batch_losses import *  # noqa: F403
from parity_data import *  # noqa: F403
from parity_layers import *  # noqa: F403
from parity_losses import *  # noqa: F403
from parity_methods import *  # noqa: F403
from parity_metrics import *  # noqa: F403
from parity_optimizers import *  # noqa: F403
