"""A TPU: found, connected to, initialised, and only then a strategy over it, in this order.

Left to itself TensorFlow speaks of a missing op kernel where there is no TPU, and waits for minutes for one that does
not answer. So this host's chips are looked for first; a TPU runtime elsewhere has to pass the start gate, and whoever
calls this sets a limit on the whole. Imports TensorFlow.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from dtj_trainer.errors import PeerLost, UsageError

LOCAL = "local"
CHIPS = ("dev/accel[0-9]*", "dev/vfio/[0-9]*")
"""How the kernel's drivers name the chips of a TPU host; see libtpu."""

_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)


def make_tpu_strategy(name: str, *, library: Any = tf, root: Path = Path("/")) -> Any:
    """The strategy over the TPU of this name.

    Args:
        name: `local`, or the addresses of TPU runtimes as `grpc://host:port`, separated by commas.
        library: TensorFlow.
        root: where this host's files are.

    Raises:
        UsageError: there is no TPU, or this TensorFlow cannot use one.
        PeerLost: the TPU's runtime went away.
    """
    if name == LOCAL:
        _look_for_chips(CHIPS, root)
    doing = "found"
    try:
        resolver = library.distribute.cluster_resolver.TPUClusterResolver(name)
        doing = "connected to"
        library.config.experimental_connect_to_cluster(resolver)
        doing = "initialised"
        library.tpu.experimental.initialize_tpu_system(resolver)
        doing = "used"
        return library.distribute.TPUStrategy(resolver)
    except _LOST as error:
        raise PeerLost(f"TPU {name}: could not be {doing}: {_first_line(error)}") from None
    except (tf.errors.OpError, ValueError, RuntimeError, ImportError) as error:
        raise UsageError(
            f"TPU {name}: could not be {doing}: {_first_line(error)}; use the trainer's image for TPUs, and "
            "spec.accelerator with a TPU's profile and topology",
            restart_may_help=True,
        ) from None


def _look_for_chips(patterns: Sequence[str], root: Path) -> None:
    if not any(any(root.glob(pattern)) for pattern in patterns):
        raise UsageError(
            f"TPU not found: this host has none of {', '.join(f'/{pattern}' for pattern in patterns)}; set "
            "spec.accelerator with a TPU's profile and topology, which asks for google.com/tpu and selects its nodes, "
            "or set TPU_NAME=grpc://host:port, or another --strategy",
            restart_may_help=True,
        )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
