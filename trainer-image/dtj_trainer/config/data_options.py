"""The options of the input, checked against each other. Must not import TensorFlow."""

import socket
from collections.abc import Mapping

from dtj_trainer.config import options
from dtj_trainer.config.cluster import DATA_WORKER, DISPATCHER, Task
from dtj_trainer.config.data import FILE, IMAGES, MEMORY, NONE, DataConfig, ServiceTask
from dtj_trainer.config.options import ParsedArgs
from dtj_trainer.errors import UsageError

SERVICE_ADDRESS = "TF_DATA_SERVICE_ADDRESS"
SERVICE_PORT = "DTJ_DATA_SERVICE_PORT"
OWN_HOST = "DTJ_HOST"
DEFAULT_SERVICE_PORT = 2222

_ONLY_WITH_FILES = (
    options.DATA_FORMAT, options.HELD_OUT, options.LABEL_COLUMN, options.COLUMNS, options.FEATURES,
    options.IMAGE_SIZE, options.SHUFFLE_WINDOW, options.CACHE, options.SHARD,
)  # fmt: skip


def data_config(args: ParsedArgs, environ: Mapping[str, str]) -> DataConfig:
    """What the job says of its input.

    Raises:
        UsageError: two options that exclude each other, or one without what it needs.
    """
    where = args.value(options.DATA_DIR)
    if where is None:
        _refuse_without_files(args)
    elif args.source(options.DATASET):
        raise UsageError(f"{args.source(options.DATA_DIR)} and {args.source(options.DATASET)}: give one of the two")
    cache, shard = args.value(options.CACHE), args.value(options.SHARD)
    if shard == FILE and cache == MEMORY:
        raise UsageError("--shard=file and --cache=memory: what is in memory is not read by file; give one of the two")
    form = args.value(options.DATA_FORMAT)
    if shard == FILE and form == IMAGES:
        raise UsageError("--shard=file: of images each worker reads only its share of each batch anyway; leave it out")
    return DataConfig(
        where=where,
        format=form,
        validation=args.value(options.HELD_OUT),
        label=args.value(options.LABEL_COLUMN),
        columns=args.value(options.COLUMNS),
        features=args.value(options.FEATURES),
        image_size=args.value(options.IMAGE_SIZE),
        shuffle_window=args.value(options.SHUFFLE_WINDOW),
        # Files that each worker has to itself are read as they come.
        cache=NONE if shard == FILE and args.source(options.CACHE) is None else cache,
        shard=shard,
        service=_service(args, environ),
    )


def service_task(task: Task, environ: Mapping[str, str]) -> ServiceTask | None:
    """What a task of the tf.data service needs to know; None for the others.

    Raises:
        UsageError: TF_DATA_SERVICE_ADDRESS or DTJ_DATA_SERVICE_PORT is missing or malformed.
    """
    if task.role not in (DISPATCHER, DATA_WORKER):
        return None
    dispatcher = environ.get(SERVICE_ADDRESS, "")
    if not dispatcher:
        raise UsageError(f"{task.role}: {SERVICE_ADDRESS} is not set; give the dispatcher's host:port")
    port = _port_of(dispatcher)
    own = environ.get(SERVICE_PORT, "")
    if own and (not own.isdecimal() or not 0 < int(own) < 65536):
        raise UsageError(f"{SERVICE_PORT}={own}: give a port from 1 to 65535")
    if not own and task.role == DATA_WORKER:
        port = DEFAULT_SERVICE_PORT
    host = environ.get(OWN_HOST) or socket.gethostname()
    return ServiceTask(dispatcher=dispatcher, host=host, port=int(own) if own else port)


def _refuse_without_files(args: ParsedArgs) -> None:
    for option in _ONLY_WITH_FILES:
        if args.source(option):
            raise UsageError(f"{args.source(option)}: it is about your own files; give --data-dir too, or leave it out")


def _service(args: ParsedArgs, environ: Mapping[str, str]) -> str | None:
    wanted = args.value(options.DATA_SERVICE)
    address = environ.get(SERVICE_ADDRESS) or None
    if wanted == "off":
        return None
    if wanted == "on" and address is None:
        raise UsageError(
            f"--data-service=on: {SERVICE_ADDRESS} is not set; give the job a dispatcher and data workers, "
            "or leave it out"
        )
    if address is not None:
        _port_of(address)
    return address


def _port_of(address: str) -> int:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"{SERVICE_ADDRESS}={address}: not host:port; give e.g. job-dispatcher-0.job:2222")
    return int(port)
