"""The tf.data service: the tasks that read and decode for the training tasks, and what these see of it.

The order is not repeatable: whichever data worker has a batch ready gives it to whoever asks. Each example comes once
in a pass over the data, also where a dispatcher was restarted; what a lost data worker had not delivered is left out
of that pass. A run that resumes begins a new pass.

`serve` imports a part of TensorFlow only; see `dtj_trainer.distribution.tf_server`.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtj_launch.progress import Phase, ProgressStore
from dtj_trainer.compat import lean
from dtj_trainer.config.cluster import DISPATCHER, Task
from dtj_trainer.config.data import ServiceTask
from dtj_trainer.errors import PeerLost, TrainerError, UsageError

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from dtj_trainer.config.parsing import Config
    from dtj_trainer.data.full_batches import FullBatches
    from dtj_trainer.data.source import Stream
    from dtj_trainer.data.worker_shards import Share

JOURNAL = "data-service"
"""Below the checkpoint directory: what a restarted dispatcher has to know."""
_LOST_AFTER_SECONDS = 10
_HEARTBEAT_MILLISECONDS = 1000


def serve_data(config: Config, service: ServiceTask, progress_store: ProgressStore) -> None:
    """Serves until the process is terminated; never returns. The dispatcher must be there before a data worker.

    Without a directory for checkpoints, a dispatcher that is lost takes the pass with it.

    Raises:
        PeerLost: a data worker does not get through to the dispatcher.
        UsageError: the server cannot be started with these options.
    """
    progress_store.update(phase=Phase.BUILDING)
    task = config.cluster.task
    # Of a bucket there is a local copy only, which is no place for what has to outlive the pod.
    checkpoints = None if config.checkpoint.location else config.checkpoint.directory
    library = lean.data_service_library()
    try:
        if task.role == DISPATCHER:
            server = library.DispatchServer(_dispatcher(library, service, checkpoints))
        else:
            server = library.WorkerServer(_worker(library, service, config.start_timeout))
    except (lean.errors_library().OpError, OSError, RuntimeError, ValueError) as error:
        raise _error_of(task, service, error) from None
    progress_store.update(phase=Phase.TRAINING)
    kept = f", journal in {checkpoints / JOURNAL}" if checkpoints and task.role == DISPATCHER else ""
    log.info(f"{task}: serving port {service.port} of the tf.data service{kept}")
    threading.Event().wait()
    del server  # for as long as the process lives


def _dispatcher(library: Any, service: ServiceTask, checkpoints: Path | None) -> Any:
    journal = checkpoints and checkpoints / JOURNAL
    if journal:
        journal.mkdir(parents=True, exist_ok=True)
    return library.DispatcherConfig(
        port=service.port,
        work_dir=str(journal) if journal else None,
        fault_tolerant_mode=journal is not None,
        worker_timeout_ms=_LOST_AFTER_SECONDS * 1000,
    )


def _worker(library: Any, service: ServiceTask, start_timeout: float) -> Any:
    return library.WorkerConfig(
        dispatcher_address=service.dispatcher,
        worker_address=f"{service.host}:{service.port}",
        port=service.port,
        heartbeat_interval_ms=_HEARTBEAT_MILLISECONDS,
        dispatcher_timeout_ms=round(start_timeout * 1000),
    )


def _error_of(task: Task, service: ServiceTask, error: Exception) -> TrainerError:
    message = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    if task.role == DISPATCHER:
        return UsageError(
            f"{task}: tf.data service on port {service.port}: {message}; give a free port and a writable volume",
            restart_may_help=True,
        )
    return PeerLost(f"{task}: tf.data service at {service.dispatcher}: {message}")


class FromService:
    """A source whose batches for training come from the data workers; those to be judged by are read here.

    Also `dtj_trainer.data.worker_shards.Divisible`: each replica asks for batches of its own size.
    """

    def __init__(self, source: FullBatches, config: Config) -> None:
        """Args:
        source: what the data workers are to read; they must see its files at the same paths.
        """
        address = config.data.service
        assert address is not None  # a checked configuration
        self.undivided = source
        self._address = f"grpc://{address}"
        # A name that another attempt or another choice of data has used would be given their batches.
        identity = repr((config.data, source.name, source.examples, source.input_spec, config.seed))
        self._pass = f"{config.job}-{config.attempt}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
        self.name, self.classes = source.name, source.classes
        self.examples, self.validation_examples = source.examples, source.validation_examples
        self.input_spec = source.input_spec

    def batches(self, *, batch: int, seed: Any, first_step: int = 0, offset: int = 0) -> Stream:
        """See `Source`; seed and first step decide nothing here."""
        return self._stream(batch)

    def share_of_batches(self, *, batch: int, seed: Any, first_step: int, share: Share, offset: int = 0) -> Stream:
        """See `Divisible`."""
        first, end = share.rows(batch)
        return self._stream((end - first) // share.replicas)

    def validation(self, *, batch: int) -> Stream:
        """See `Source`."""
        return self.undivided.validation(batch=batch)

    def diagnose(self, *, until: float) -> UsageError | None:
        """See `FullBatches`."""
        return self.undivided.diagnose(until=until)

    def _stream(self, rows: int) -> Stream:
        import tensorflow as tf

        from dtj_trainer.data.source import endless

        service = tf.data.experimental.service
        stream = self.undivided.unordered(rows=rows).apply(
            service.distribute(service.ShardingPolicy.DYNAMIC, self._address, job_name=f"{self._pass}-{rows}")
        )
        return endless(stream)
