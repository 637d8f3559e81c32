"""A SavedModel as a TFLite model for phones and small machines. Imports TensorFlow."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer.export.saved_model import EXTRAS, INPUT, ONE_EXAMPLE, SIGNATURE

_TOLERANCE = 1e-3
_BATCH = 2


def convert(saved_model: Path, target: Path) -> str | None:
    """Writes one file, with the SavedModel's signature, out of TFLite's own operations alone.

    Those of TensorFlow (the Flex delegate) are left out: no interpreter that Python's package registry has knows them,
    that of TensorFlow 2.21 included, so what they answer could not be checked.

    Returns:
        How the file is asked otherwise than the SavedModel, if it is.

    Raises:
        ValueError: the model has operations that TFLite has not, or answers otherwise when it is converted.
    """
    loaded = tf.saved_model.load(str(saved_model))
    serve, one = (loaded.signatures.get(name) for name in (SIGNATURE, ONE_EXAMPLE))
    if all(spec.dtype != tf.string for spec in _specs(serve).values()):
        try:
            _write(loaded, serve, target)
            return None
        except ValueError:
            if one is None:  # of another exporter
                raise
        note = ""
    else:
        if one is None:
            raise ValueError("the model reads text, for which TFLite has no operations; export it again")
        note = f" of numbers of words, not text: see {EXTRAS}/vocabulary.txt and docs/export.md"
    _write(loaded, one, target)
    return f"takes one example at a time, {_described(_specs(one))}{note}"


def _write(loaded: Any, serve: Any, target: Path) -> None:
    """Converts and checks one signature of a SavedModel."""
    # Not from_saved_model: it leaves the variables out (TensorFlow 2.21), and the model answers with NaN.
    converter = tf.lite.TFLiteConverter.from_concrete_functions([serve], loaded)
    try:
        content = converter.convert()
    except Exception as error:  # ConverterError has no public name, and MLIR raises others as well
        raise ValueError(_why(str(error))) from error
    _check(content, serve)
    target.write_bytes(content)


def _specs(serve: Any) -> Mapping[str, Any]:
    """The tf.TensorSpec of each input, by its name: a model of several has no `inputs`."""
    specs: Mapping[str, Any] = serve.structured_input_signature[1]
    return specs


def _described(specs: Mapping[str, Any]) -> str:
    """`float32 [1, 8, 8, 1]`, or each of several inputs after its name."""
    texts = {name: f"{spec.dtype.name} {spec.shape.as_list()}" for name, spec in specs.items()}
    return texts[INPUT] if list(texts) == [INPUT] else ", ".join(f"{name} {texts[name]}" for name in sorted(texts))


def _why(text: str) -> str:
    operations = sorted(set(re.findall(r"\btf\.([A-Z]\w+)", text)))
    if operations:
        return f"the model has operations that TFLite does not have ({', '.join(operations)})"
    return text.strip().splitlines()[0] if text.strip() else "the converter gave no reason"


def _check(content: bytes, serve: Any) -> None:
    """That the converted model answers what the SavedModel does: a conversion can lose weights without a word."""
    inputs = {name: _example(spec) for name, spec in _specs(serve).items()}
    runner = tf.lite.Interpreter(model_content=content).get_signature_runner(SIGNATURE)
    answers = runner(**inputs)
    wanted = serve(**{name: tf.constant(value) for name, value in inputs.items()})
    for name, value in wanted.items():
        # Whole numbers are often the place of a maximum, which rounding may move.
        if value.dtype.is_floating and not np.allclose(
            answers[name], value, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True
        ):
            raise ValueError(
                f"the converted model gives other results than the SavedModel ({name}): an error of the converter"
            )


def _example(spec: Any) -> Any:
    """Some input of the right shape: numbers between 0 and 1, or zeros, which every vocabulary knows."""
    shape = [_BATCH if size is None else size for size in spec.shape]
    if spec.dtype.is_floating:
        return np.random.default_rng(0).random(shape).astype(spec.dtype.as_numpy_dtype)
    return np.zeros(shape, spec.dtype.as_numpy_dtype)
