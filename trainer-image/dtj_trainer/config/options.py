"""Every option of the command line, with the environment variable that stands in for it, and `--help`.

An option is found on the command line, else in the environment, else by its default; an error names the
one that held the value. Must not import TensorFlow: a bad argument has to be refused at once.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Generic, NoReturn, TypeVar

from dtj_launch import logs
from dtj_launch.options import named
from dtj_trainer.config import export_formats, retired
from dtj_trainer.config import option_values as values
from dtj_trainer.config.data import FORMATS, SERVICES, SHARDS, FeatureSpec
from dtj_trainer.config.store_url import Location, without_credentials
from dtj_trainer.config.validation_options import Interval, KeepBest
from dtj_trainer.errors import UsageError
from dtj_trainer.registry import TASKS
from dtj_trainer.version import __version__

STRATEGIES = (
    "OneDevice", "Mirrored", "CentralStorage", "MultiWorkerMirrored", "ParameterServer", "TPU", "Pipeline",
)  # fmt: skip
NAN_POLICIES = ("fail", "rollback", "skip")
OPTIMIZERS = (
    "adam", "sgd", "adadelta", "adafactor", "adagrad", "adamax", "adamw", "ftrl", "lamb", "lion", "muon", "nadam",
    "rmsprop",
)  # fmt: skip
"""Keras' names, in lower case. tf_keras has neither lamb nor muon."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, kw_only=True)
class Option(Generic[T_co]):
    """One option. `parse` turns its text into a value, or raises ValueError saying what is wanted."""

    flag: str
    parse: Callable[[str], T_co]
    default: T_co
    help: str
    variable: str | None = None
    metavar: str = "N"


@dataclass(frozen=True)
class ParsedArgs:
    """What this process was started with."""

    arguments: Mapping[str, str]
    environ: Mapping[str, str]
    rest: tuple[str, ...] | None = None
    """What follows `--`: a script's arguments."""

    def source(self, option: Option[T]) -> str | None:
        """What decides the option, as a message shows it: `--flag=text` or `VARIABLE=text`; None: it was not given."""
        given = self._given(option)
        return None if given is None else f"{given[0]}={without_credentials(given[1])}"

    def _given(self, option: Option[T]) -> tuple[str, str] | None:
        """The flag or the variable, and its text."""
        if option.flag in self.arguments:
            return option.flag, self.arguments[option.flag]
        if option.variable and self.environ.get(option.variable):
            return option.variable, self.environ[option.variable]
        return None

    def value(self, option: Option[T]) -> T:
        """The option's value.

        Raises:
            UsageError: the text given for it cannot be parsed.
        """
        given = self._given(option)
        if given is None:
            return option.default
        try:
            return option.parse(given[1])
        except ValueError as wanted:
            raise UsageError(f"{self.source(option)}: {wanted}") from None


def read(argv: Sequence[str], environ: Mapping[str, str]) -> ParsedArgs:
    """Takes the command line apart; `--help` and `--version` print and exit 0.

    Raises:
        UsageError: an unknown, retired or incomplete argument.
    """
    own, dashes, rest = _at_dashes(argv)
    retired.refuse(own)
    given, unknown = _parser().parse_known_args(own)
    if unknown:
        raise UsageError(f"unrecognized arguments: {named(unknown)}; see --help")
    arguments = vars(given)
    return ParsedArgs(
        {flag: text for flag, text in arguments.items() if text is not None}, environ, tuple(rest) if dashes else None
    )


def _at_dashes(argv: Sequence[str]) -> tuple[Sequence[str], bool, Sequence[str]]:
    """What is before `--`, whether there is one, and what is after it."""
    if "--" not in argv:
        return argv, False, ()
    at = list(argv).index("--")
    return argv[:at], True, argv[at + 1 :]


TASK = Option(
    flag="--task", parse=values.one_of(tuple(TASKS), "task"), default="image-classification", metavar="NAME",
    help=f"the task: {', '.join(TASKS)}",
)  # fmt: skip
DATASET = Option[str | None](
    flag="--dataset", parse=str, default=None, metavar="NAME",
    help="the data set (default: the first one of the task): "
    + "; ".join(f"{n}: {', '.join(t.datasets)}" for n, t in TASKS.items()),
)  # fmt: skip
MODEL = Option[str | None](
    flag="--model", parse=str, default=None, metavar="MODULE:BUILD",
    help="your own model instead of --task: a function without arguments that returns a Keras model",
)  # fmt: skip
DATA = Option[str | None](
    flag="--data", parse=str, default=None, metavar="MODULE:DATASET",
    help="your own data instead of --dataset: a function without arguments that returns a tf.data.Dataset of single "
    "examples (inputs, labels), or two as {'training': …, 'held_out': …}",
)  # fmt: skip
LOSS = Option[str | None](
    flag="--loss", parse=values.given, default=None, metavar="NAME",
    help="the loss for --model, by its name in Keras (default: the loss with which the model is compiled)",
)  # fmt: skip
CLASS_WEIGHTS = Option[tuple[float, ...]](
    flag="--class-weights", parse=values.class_weights, default=(), metavar="LIST",
    help="weight in the loss of each class of a --model, such as 0:1,1:2.5, as class_weight in Keras' fit",
)  # fmt: skip
NO_SHUFFLE = Option(
    flag="--no-shuffle", parse=values.true, default=False,
    help="keep the order of the examples of --data in each epoch",
)  # fmt: skip
DATA_DIR = Option[str | None](
    flag="--data-dir", parse=values.given, default=None, metavar="PATH",
    help="your own files instead of --dataset: a directory, a file, or a pattern such as 's3://bucket/part-*.csv'",
)  # fmt: skip
DATA_FORMAT = Option[str | None](
    flag="--data-format", parse=values.one_of(FORMATS, "format"), default=None, metavar="NAME",
    help=f"the format of the files: {', '.join(FORMATS)} (default: from the names of the files)",
)  # fmt: skip
HELD_OUT = Option[str | float](
    flag="--held-out", parse=values.validation, default=0.1, metavar="SHARE",
    help="share of the examples to hold out for the evaluation, or the path of files with such examples",
)  # fmt: skip
LABEL_COLUMN = Option(
    flag="--label-column", parse=values.given, default="label", metavar="NAME",
    help="csv, tfrecord: the column to predict",
)  # fmt: skip
COLUMNS = Option[tuple[str, ...] | None](
    flag="--columns", parse=values.names, default=None, metavar="A,B",
    help="csv, tfrecord: the columns to predict it from (default: all other columns)",
)  # fmt: skip
FEATURES = Option[tuple[FeatureSpec, ...] | None](
    flag="--features", parse=values.features, default=None, metavar="SPECS",
    help="tfrecord: NAME:float|int|bytes[:SHAPE],... of inputs and label (default: as in the first record)",
)  # fmt: skip
IMAGE_SIZE = Option[tuple[int, int] | None](
    flag="--image-size", parse=values.image_size, default=None, metavar="HxW",
    help="resize images to this size (default: the size of the first image)",
)  # fmt: skip
SHUFFLE_WINDOW = Option(
    flag="--shuffle-window", parse=values.whole(1), default=10_000,
    help="size of the shuffle buffer in examples, if files are read one after the other",
)  # fmt: skip
CACHE = Option(
    flag="--cache", parse=values.cache, default="auto", metavar="WHERE",
    help="cache of decoded examples: memory, none, or auto (memory if they are few)",
)  # fmt: skip
SHARD = Option(
    flag="--shard", parse=values.one_of(SHARDS, "way to share the data"), default="data", metavar="HOW",
    help="data: workers share each batch; file: each worker reads its own files; auto: file if the files divide evenly",
)  # fmt: skip
DATA_SERVICE = Option(
    flag="--data-service", parse=values.one_of(SERVICES, "answer"), default="auto", metavar="auto|on|off",
    help="let the job's data workers read and decode; auto: if TF_DATA_SERVICE_ADDRESS is set",
)  # fmt: skip
EPOCHS = Option(
    flag="--epochs", parse=values.whole(1), default=5,
    help="number of passes over the training examples",
)  # fmt: skip
BATCH_SIZE = Option[int | None](
    flag="--batch-size", parse=values.whole(1), default=None,
    help="global batch: examples per step over all replicas (default: 64)",
)  # fmt: skip
PER_REPLICA_BATCH_SIZE = Option[int | None](
    flag="--per-replica-batch-size", parse=values.whole(1), default=None,
    help="examples per step and replica, instead of --batch-size",
)  # fmt: skip
OPTIMIZER = Option(
    flag="--optimizer", parse=values.one_of(OPTIMIZERS, "optimizer"), default="adam", metavar="NAME",
    help=f"an optimizer of Keras: {', '.join(OPTIMIZERS)}",
)  # fmt: skip
OPTIMIZER_OPTIONS = Option[Mapping[str, "bool | int | float"]](
    flag="--optimizer-options", parse=values.settings, default=MappingProxyType({}), metavar="A=N,B=N",
    help="options of the optimizer, by their names in Keras, such as momentum=0.9,clipnorm=1.0,use_ema=true",
)  # fmt: skip
LEARNING_RATE = Option[float | None](
    flag="--learning-rate", parse=values.positive, default=None, metavar="RATE",
    help="highest learning rate of the optimizer (default: by task and optimizer)",
)  # fmt: skip
SCALE_LEARNING_RATE = Option[int | None](
    flag="--scale-learning-rate", parse=values.whole(1), default=None,
    help="the learning rate is meant for a global batch of N: multiply it by global batch / N",
)  # fmt: skip
SCHEDULE = Option(
    flag="--schedule", parse=values.one_of(("constant", "cosine", "exponential", "warmup-cosine"), "schedule"),
    default="constant", metavar="NAME",
    help="schedule of the learning rate: constant, cosine (to 0), exponential (to a hundredth), warmup-cosine (from 0)",
)  # fmt: skip
WARMUP_STEPS = Option[int | None](
    flag="--warmup-steps", parse=values.whole(1), default=None,
    help="number of steps in which the rate rises from 0 (default: a tenth of the decay)",
)  # fmt: skip
DECAY_STEPS = Option[int | None](
    flag="--decay-steps", parse=values.whole(1), default=None,
    help="step at which the decay of the rate ends (default: the last step)",
)  # fmt: skip
LEARNING: tuple[Option[object], ...] = (
    OPTIMIZER, OPTIMIZER_OPTIONS, LEARNING_RATE, SCALE_LEARNING_RATE, SCHEDULE, WARMUP_STEPS, DECAY_STEPS,
)  # fmt: skip
SEED = Option(
    flag="--seed", parse=values.whole(0), default=0,
    help="seed of the initial weights and of the order of the data",
)  # fmt: skip
STEPS_PER_CALL = Option(
    flag="--steps-per-call", parse=values.whole(1), default=20,
    help="largest number of steps in one call of TensorFlow; fewer if a step is slow",
)  # fmt: skip
ACTIONS = Option[str | None](
    flag="--actions", parse=str, default=None, metavar="M:F",
    help="your function that returns a list of actions to call every N steps, as package.module:function",
)  # fmt: skip
VALIDATE_EVERY = Option[Interval | None](
    flag="--validate-every", parse=Interval.of, default=None, metavar="INTERVAL",
    help="evaluate the held-out examples on the workers during the training, and after the last step: each time "
    "after this number of steps, as in 500, or of epochs, as in epoch or 2epochs (default: only at the end)",
)  # fmt: skip
KEEP_BEST = Option[KeepBest | None](
    flag="--keep-best", parse=KeepBest.of, default=None, metavar="METRIC",
    help="--validate-every: keep the checkpoint with the best value of this metric, such as val_loss, and export that; "
    "METRIC:min or METRIC:max where the name does not tell which is better",
)  # fmt: skip
RUN_EAGERLY = Option(
    flag="--run-eagerly", parse=values.true, default=False,
    help="run without tf.function, to step through with a debugger",
)  # fmt: skip
STRATEGY = Option(
    flag="--strategy", variable="DTJ_STRATEGY", parse=values.one_of(STRATEGIES, "strategy"), default="OneDevice",
    metavar="NAME", help=", ".join(STRATEGIES),
)  # fmt: skip
TPU_NAME = Option(
    flag="--tpu-name", variable="TPU_NAME", parse=values.tpu_name, default="local", metavar="NAME",
    help="TPU: local, for the chips of this host, or grpc://host:port of its runtime",
)  # fmt: skip
LOGICAL_CPUS = Option(
    flag="--logical-cpus", parse=values.whole(1), default=1,
    help="number of CPU devices for Mirrored and CentralStorage if there is no GPU",
)  # fmt: skip
ON_NAN = Option(
    flag="--on-nan", variable="DTJ_ON_NAN", parse=values.one_of(NAN_POLICIES, "action"), default="fail",
    metavar="ACTION",
    help="when the loss is NaN or infinite: fail; rollback to the last checkpoint and leave out the batch; or skip "
    "updates whose loss or gradients are not finite",
)  # fmt: skip
ON_NAN_LIMIT = Option(
    flag="--on-nan-limit", parse=values.whole(1), default=10,
    help="--on-nan=rollback and skip: fail after this many",
)  # fmt: skip
MICRO_BATCHES = Option(
    flag="--micro-batches", parse=values.whole(1), default=4,
    help="Pipeline: number of equal parts of a batch that follow each other through the stages",
)  # fmt: skip
STAGES = Option[tuple[str, ...]](
    flag="--stages", parse=values.names, default=(), metavar="LAYERS",
    help="Pipeline: first layer of each stage except the first, such as flatten,dense_1 (default: by parameters)",
)  # fmt: skip
CHECKPOINT_DIR = Option[Path | Location | None](
    flag="--checkpoint-dir", variable="DTJ_CHECKPOINT_DIR", parse=values.place, default=None, metavar="DIR",
    help="directory, or s3:// or gs:// URL, to save checkpoints to and to resume from; all tasks of a job share it",
)  # fmt: skip
CHECKPOINT_EVERY_STEPS = Option[int | None](
    flag="--checkpoint-every-steps", variable="DTJ_CHECKPOINT_EVERY_STEPS", parse=values.whole(1), default=None,
    help="save after every N steps",
)  # fmt: skip
CHECKPOINT_EVERY_SECONDS = Option[float | None](
    flag="--checkpoint-every-seconds", variable="DTJ_CHECKPOINT_EVERY_SECONDS", parse=values.positive, default=None,
    metavar="S", help="save after every S seconds (default: 30, if steps are not given either)",
)  # fmt: skip
CHECKPOINT_KEEP = Option(
    flag="--checkpoint-keep", variable="DTJ_CHECKPOINT_KEEP", parse=values.whole(1), default=3,
    help="number of newest checkpoints to keep",
)  # fmt: skip
EXPORT_DIR = Option[Path | Location | None](
    flag="--export-dir", variable="DTJ_EXPORT_DIR", parse=values.place, default=None, metavar="DIR",
    help="directory, or s3:// or gs:// URL, for the SavedModel, as DIR/<version>",
)  # fmt: skip
EXPORT_FORMATS = Option[tuple[str, ...] | None](
    flag="--export-formats", variable="DTJ_EXPORT_FORMATS", parse=export_formats.parse, default=None, metavar="LIST",
    help=f"formats of the exported model: {', '.join(export_formats.FORMATS)}, with commas (default: "
    f"{export_formats.SAVED_MODEL}, which is always one of them)",
)  # fmt: skip
LOG_DIR = Option[Path | Location | None](
    flag="--log-dir", variable="DTJ_LOG_DIR", parse=values.place, default=None, metavar="DIR",
    help="directory, or s3:// or gs:// URL, for TensorBoard's logs and result.json",
)  # fmt: skip
STORE_CACHE = Option[Path | None](
    flag="--store-cache", variable="DTJ_STORE_CACHE", parse=values.directory, default=None, metavar="DIR",
    help="URLs: directory of a local disk for their copies (default: one below that for temporary files)",
)  # fmt: skip
STORE_RETRY_SECONDS = Option(
    flag="--store-retry-seconds", variable="DTJ_STORE_RETRY_SECONDS", parse=values.positive, default=60.0, metavar="S",
    help="URLs: seconds for which a request that fails is repeated",
)  # fmt: skip
STATUS_PORT = Option[int | None](
    flag="--status-port", variable="DTJ_STATUS_PORT", parse=values.port, default=None,
    help="port on which to serve GET /status, /metrics and /healthz",
)  # fmt: skip
PROGRESS_EVERY = Option(
    flag="--progress-every", parse=values.positive, default=2.0, metavar="S",
    help="seconds between two progress lines",
)  # fmt: skip
LOG_FORMAT = Option(
    flag="--log-format", variable=logs.FORMAT_VARIABLE, parse=values.one_of(logs.FORMATS, "format"), default=logs.PLAIN,
    metavar="FORMAT",
    help="format of the log lines: plain, the message alone; text, with time, level and logger; json, an object a line",
)  # fmt: skip
LOG_LEVEL = Option(
    flag="--log-level", variable=logs.LEVEL_VARIABLE, parse=values.one_of(logs.LEVELS, "level"), default="info",
    metavar="LEVEL", help=f"lowest level of log lines that are shown: {', '.join(logs.LEVELS)}",
)  # fmt: skip
START_TIMEOUT = Option(
    flag="--start-timeout", parse=values.positive, default=300.0, metavar="S",
    help="seconds to wait for the other tasks; then exit 75",
)  # fmt: skip
STALL_TIMEOUT = Option[float | None](
    flag="--stall-timeout", variable="DTJ_STALL_TIMEOUT", parse=values.positive, default=None, metavar="S",
    help="seconds without a finished step, after which the late task exits with 1 and the other tasks with 75 "
    "(default: 1800; 300 under ParameterServer and Pipeline, and with a tf.data service; in a script, at least ten "
    "times its longest step)",
)  # fmt: skip

SCRIPT = Option[str | None](
    flag="--script", parse=str, default=None, metavar="FILE",
    help="run this Python file, or module by its dotted name, instead of the trainer's own loop; everything after -- "
    "is an argument of the script",
)  # fmt: skip

KERAS_OVERRIDE = Option(
    flag="--keras-override", variable="DTJ_KERAS_OVERRIDE", parse=values.one_of(("on", "off"), "answer"), default="on",
    metavar="on|off",
    help="--script and sessions: whether fit, evaluate and predict of Keras 3 are adapted to several replicas; off "
    "leaves Keras as it is",
)  # fmt: skip

GROUPS: Mapping[str, tuple[Option[object], ...]] = {
    "your own script": (SCRIPT, KERAS_OVERRIDE),
    "model and optimizer": (TASK, DATASET, EPOCHS, BATCH_SIZE, PER_REPLICA_BATCH_SIZE, *LEARNING, SEED),
    "your own model and data": (MODEL, DATA, LOSS, CLASS_WEIGHTS, NO_SHUFFLE),
    "your own files": (
        DATA_DIR, DATA_FORMAT, HELD_OUT, LABEL_COLUMN, COLUMNS, FEATURES, IMAGE_SIZE, SHUFFLE_WINDOW, CACHE, SHARD,
        DATA_SERVICE,
    ),
    "how to run": (
        STRATEGY, LOGICAL_CPUS, TPU_NAME, ACTIONS, STEPS_PER_CALL, ON_NAN, ON_NAN_LIMIT,
        START_TIMEOUT, STALL_TIMEOUT, RUN_EAGERLY,
    ),
    "how to validate": (VALIDATE_EVERY, KEEP_BEST),
    "how to cut a model (Pipeline)": (MICRO_BATCHES, STAGES),
    "checkpoints and outputs": (
        CHECKPOINT_DIR, CHECKPOINT_EVERY_STEPS, CHECKPOINT_EVERY_SECONDS, CHECKPOINT_KEEP, EXPORT_DIR, EXPORT_FORMATS,
        LOG_DIR, STORE_CACHE, STORE_RETRY_SECONDS,
    ),
    "progress and log": (PROGRESS_EVERY, STATUS_PORT, LOG_FORMAT, LOG_LEVEL),
}  # fmt: skip


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line in place of argparse's usage text."""
        raise UsageError(f"{message}; see --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m dtj_trainer",
        allow_abbrev=False,
        description="Trains one replica of a DistributedTrainingJob, or a whole job on this machine. TF_CONFIG "
        "describes the rest of the job.",
        epilog="Exit codes: 0 done, 1 error in the training, 2 bad input, 42 stopped on request and saved, 75 another "
        "task went away, 143 stopped on request with nothing to save. Without any option, the outputs go to "
        "./dtj-output.",
    )
    parser.add_argument("--version", action="version", version=f"dtj-trainer {__version__}")
    for title, options in GROUPS.items():
        group = parser.add_argument_group(title)
        for option in options:
            if option.parse is values.true:
                group.add_argument(option.flag, dest=option.flag, action="store_const", const="", help=option.help)
            else:
                group.add_argument(
                    option.flag, dest=option.flag, metavar=option.metavar, help=option.help + _otherwise(option)
                )
    return parser


def _otherwise(option: Option[object]) -> str:
    parts = [f"default: {option.default}"] if option.default not in (None, (), {}) else []
    parts += [f"or {option.variable}"] if option.variable else []
    return f" ({'; '.join(parts)})" if parts else ""
