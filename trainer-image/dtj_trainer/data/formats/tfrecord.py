"""TFRecord files of tf.train.Example with features of fixed length. Imports TensorFlow."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer.config.data import DataConfig
from dtj_trainer.data.files import FileSet, fault_of, first_line
from dtj_trainer.data.formats.images import decode_image, is_picture, size_of
from dtj_trainer.data.formats.reader import LOOKED_AT, is_blank, named, rounded, shortened
from dtj_trainer.data.gzip_files import compression
from dtj_trainer.data.source import Stream
from dtj_trainer.errors import UsageError

_TYPES = {"float": tf.float32, "int": tf.int64, "bytes": tf.string}
_KINDS = {"float_list": "float", "int64_list": "int", "bytes_list": "bytes"}


@dataclass(frozen=True)
class _Feature:
    """One feature of a tf.train.Example, of fixed length."""

    name: str
    kind: str
    shape: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """How many values it has."""
        return math.prod(self.shape)


class TFRecordReader:
    """A `dtj_trainer.data.formats.reader.Reader` of TFRecord files.

    The input is one feature, or several numeric ones in the order of their names, flat, behind each other. A feature
    of bytes is a picture where it begins as one does, and else a text.
    """

    def __init__(self, config: DataConfig, found: FileSet, *, numbers: bool, own_model: bool) -> None:
        """Learns from the first record of all files what each has.

        Args:
            own_model: whether a model of the user's own is trained, which may decode bytes of any kind.

        Raises:
            UsageError: it cannot be read, or features are not there or do not go together.
        """
        self.numbers = numbers
        self._first = found.paths[0]
        first = self._first_record(found.paths)
        specs = {spec.name: spec for spec in _features_of(first)}
        self._label = self._label_of(self._feature("--label-column", config.label, specs))
        wanted = sorted(config.columns or (name for name in specs if name != config.label))
        self._inputs = [self._feature("--columns", name, specs) for name in wanted]
        if config.label in wanted:
            raise UsageError(f"--columns: {config.label} is the label (--label-column); name the others")
        self._picture_size: tuple[int, ...] | None = None
        self.decodes_batches = True
        self.examples_are = self._input_spec(config, first, own_model=own_model)
        self._rounded = self._look_for_rounding()

    def records(self, path: Any) -> Stream:
        """Serialized examples."""
        return tf.data.TFRecordDataset(path, compression_type=compression(path))

    def prepare(self, records: Any, path: Any) -> Any:
        """Nothing: an example is whole."""
        return records

    def parse(self, records: Any) -> tuple[Any, Any]:
        """The features that are used."""
        used = {
            spec.name: tf.io.FixedLenFeature(spec.shape, _TYPES[spec.kind]) for spec in (*self._inputs, self._label)
        }
        features = tf.io.parse_example(records, used)
        return self._dense(features), self._labels(features[self._label.name])

    def explain(self, record: bytes) -> str | None:
        """See `Reader`."""
        try:
            features = tf.train.Example.FromString(record).features.feature
        except Exception as error:
            if not _is_decode_error(error):
                raise
            return "it is not a tf.train.Example"
        for spec in (*self._inputs, self._label):
            kind = features[spec.name].WhichOneof("kind") if spec.name in features else None
            if kind is None:
                return f"feature {spec.name} is missing"
            if _KINDS[kind] != spec.kind:
                return f"feature {spec.name} is of kind {_KINDS[kind]}, not {spec.kind}"
            count = len(getattr(features[spec.name], kind).value)
            if count != spec.length:
                return f"feature {spec.name} has {count} value{'' if count == 1 else 's'}, not {spec.length}"
            if (
                spec is self._label
                and kind == "bytes_list"
                and is_blank(features[spec.name].bytes_list.value[0].decode(errors="replace"))
            ):
                return f"feature {spec.name} (--label-column) is empty"
            if kind == "float_list" and not np.isfinite(features[spec.name].float_list.value).all():
                return f"feature {spec.name} has a value that is NaN or infinite"
        return None

    def describe(self) -> str:
        """See `Reader`."""
        features = [
            f"{one.name} ({one.kind}{f' {list(one.shape)}' if one.shape else ''}){self._rounded.get(one.name, '')}"
            for one in self._inputs
        ]
        if self._picture_size:
            features = [f"{self._inputs[0].name} (images of {'x'.join(map(str, self._picture_size))})"]
        label = self._rounded.get(self._label.name)
        return f"features {shortened(features)}" + (f"; label {self._label.name}{label}" if label else "")

    def check(self, paths: Sequence[str]) -> None:
        """Records are checked one by one."""

    def _label_of(self, spec: _Feature) -> _Feature:
        if spec.length != 1:
            raise UsageError(
                f"--label-column={spec.name}: a label of {spec.length} values in {self._first}; write one value for "
                "each record, such as the number of its class"
            )
        return spec

    def _labels(self, values: Any) -> Any:
        if self.numbers:
            return _numbers(values)
        if self._label.kind == "float":
            return _texts_of(_numbers(values))
        return named(values if self._label.kind == "bytes" else tf.strings.as_string(values))

    def _dense(self, features: dict[str, Any]) -> Any:
        values = [features[spec.name] for spec in self._inputs]
        if self._picture_size:
            return decode_image(values[0], self._picture_size)
        if self._inputs[0].kind == "bytes":
            return values[0]
        values = [_numbers(value) for value in values]
        if len(values) == 1:
            return values[0]
        return tf.concat(
            [tf.reshape(value, (-1, spec.length)) for value, spec in zip(values, self._inputs, strict=True)], 1
        )

    def _input_spec(self, config: DataConfig, first: tf.train.Example, *, own_model: bool) -> Any:
        kinds = [spec.kind for spec in self._inputs]
        if not kinds:
            raise UsageError(
                f"{self._first}: no feature but {config.label} (--label-column); there is nothing to learn from"
            )
        if "bytes" in kinds and len(kinds) > 1:
            names = ", ".join(spec.name for spec in self._inputs)
            raise UsageError(f"{self._first}: features {names} do not make one input; choose with --columns")
        if kinds == ["bytes"]:
            content = first.features.feature[self._inputs[0].name].bytes_list.value[0]
            if not is_picture(content):
                if not (own_model or _is_text(content)):
                    raise UsageError(
                        f"{self._first}: feature {self._inputs[0].name} holds bytes that are no text in UTF-8 and no "
                        "picture (PNG, JPEG, GIF, WebP); parse raw bytes and tensors in a function of --data, and "
                        "write texts as UTF-8"
                    )
                return tf.TensorSpec((), tf.string)
            self._picture_size = size_of(content, config.image_size, self._first)
            self.decodes_batches = False
            return tf.TensorSpec(self._picture_size, tf.float32)
        if len(self._inputs) == 1:
            shape = self._inputs[0].shape or (1,)
            self._inputs = [_Feature(self._inputs[0].name, self._inputs[0].kind, shape)]
            return tf.TensorSpec(shape, tf.float32)
        return tf.TensorSpec((sum(spec.length for spec in self._inputs),), tf.float32)

    def _look_for_rounding(self) -> dict[str, str]:
        """Of the features of whole numbers that become float32, by their names: what to say of it."""
        whole = [spec.name for spec in (*self._inputs, *([self._label] if self.numbers else [])) if spec.kind == "int"]
        values: dict[str, list[float]] = {name: [] for name in whole}
        try:
            for record in self.records(self._first).take(LOOKED_AT if whole else 0).as_numpy_iterator():
                features = tf.train.Example.FromString(record).features.feature
                for name in whole:
                    values[name] += features[name].int64_list.value
        except Exception as error:
            # The survey of all records names what is damaged.
            if not (isinstance(error, tf.errors.OpError) or _is_decode_error(error)):
                raise
        return {name: rounded(found) for name, found in values.items()}

    def _first_record(self, paths: Sequence[str]) -> tf.train.Example:
        record = None
        try:
            for self._first in paths:
                if record := next(self.records(self._first).take(1).as_numpy_iterator(), None):
                    break
            if record is None:
                raise UsageError(f"{self._first}: empty; give files with records")
            return tf.train.Example.FromString(record)
        except (tf.errors.OpError, ValueError, RuntimeError) as error:
            if isinstance(error, tf.errors.DataLossError) and (packed := _compression_of(self._first)):
                raise UsageError(f"{self._first}: compressed by {packed}; {_REMEDIES[packed]}") from None
            reason = first_line(error) or "no tf.train.Example"
            raise fault_of(self._first, error, f"record 1: {reason}; give TFRecord files of tf.train.Example") from None
        except Exception as error:
            if not _is_decode_error(error):
                raise
            raise UsageError(
                f"{self._first}: record 1 is not a tf.train.Example; write such records, or give another --data-format"
            ) from None

    def _feature(self, option: str, name: str, specs: dict[str, _Feature]) -> _Feature:
        if name not in specs:
            raise UsageError(f"{option}={name}: no such feature in {self._first}; it has {', '.join(sorted(specs))}")
        return specs[name]


_REMEDIES = {
    "gzip": "give the files names that end in .gz",
    "zlib": "write them with gzip or uncompressed, or read them in a function of --data with compression_type='ZLIB'",
}


def _compression_of(path: str) -> str | None:
    """What a file that holds no records was compressed by."""
    with tf.io.gfile.GFile(path, "rb") as file:
        start = file.read(2)
    if start == b"\x1f\x8b":
        return "gzip"
    return "zlib" if start in (b"\x78\x01", b"\x78\x9c", b"\x78\xda") else None


def _features_of(example: tf.train.Example) -> list[_Feature]:
    """What an example has, as the specification of all."""
    found = []
    for name, feature in example.features.feature.items():
        kind = _KINDS.get(feature.WhichOneof("kind"))
        if kind is None:
            continue
        count = len(getattr(feature, feature.WhichOneof("kind")).value)
        if not count:
            continue
        found.append(_Feature(name, kind, () if count == 1 else (count,)))
    return found


def _is_text(content: bytes) -> bool:
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


def _numbers(values: Any) -> Any:
    """float32 of any numbers; the graph ends where one is NaN or infinite."""
    return tf.debugging.check_numerics(tf.cast(values, tf.float32), "no number")


def _texts_of(values: Any) -> Any:
    """Numbers of float32 as texts, another for each number: of six digits where these are enough, else of nine."""
    short = tf.strings.as_string(values, shortest=True)
    exact = tf.strings.as_string(values, precision=9, shortest=True)
    return tf.where(tf.equal(tf.strings.to_number(short), values), short, exact)


def _is_decode_error(error: Exception) -> bool:
    """Whether it is google.protobuf's, which need not be imported for that."""
    return type(error).__name__ == "DecodeError"
