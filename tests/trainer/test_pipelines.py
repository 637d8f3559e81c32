"""What is seen of a pipeline of tf.data without reading it: whether two are the same, and whether files divide it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from dtj_trainer.compat import replace
from dtj_trainer.keras_fit import pipelines

FILES = ["a.tfrecord", "b.tfrecord"]
VALUES = np.arange(12.0).reshape(6, 2)


def records(names: Any = FILES) -> Any:
    return tf.data.TFRecordDataset(names)


def lines(names: Any = FILES) -> Any:
    return tf.data.TextLineDataset(names)


def fixed(names: Any = FILES) -> Any:
    return tf.data.FixedLengthRecordDataset(names, 4)


def rows(values: Any = VALUES) -> Any:
    return tf.data.Dataset.from_tensor_slices(values)


def generated() -> Any:
    return tf.data.Dataset.from_generator(lambda: iter([1.0]), output_signature=tf.TensorSpec((), tf.float32))


def noisy(seed: int) -> Any:
    return rows().map(lambda one: one + tf.random.stateless_normal([2], [seed, 1], dtype=tf.float64))


@pytest.mark.parametrize(
    ("data", "step"),
    [
        (records().map(tf.strings.length).filter(lambda one: one > 1).shuffle(9).batch(2).prefetch(1), ""),
        (records().batch(4).unbatch().padded_batch(2), "batch"),
        (records().take(3).batch(2), "take"),
        (records().batch(2).skip(1), "skip"),
        (records().repeat().batch(2), "repeat"),
        (records().cache().batch(2), "cache"),
        (records().enumerate().batch(2), "zip"),
        (records().concatenate(records()).batch(2), "concatenate"),
        (records().window(2).flat_map(lambda window: window.batch(2)).batch(2), "window"),
        (records().apply(tf.data.experimental.assert_cardinality(9)).batch(2), "assert_cardinality"),
        (records().shard(2, 0).batch(2), "shard"),
        (lines().map(tf.strings.length).batch(2), ""),
        (fixed().take(3).batch(2), "take"),
    ],
    ids=lambda value: value or "none" if isinstance(value, str) else "",
)
def test_files_divide_only_what_is_the_same_of_their_parts(data: Any, step: str) -> None:
    assert pipelines.not_by_files(data) == step
    assert pipelines.reads_files(data)


def test_files_that_are_read_in_a_function_are_found() -> None:
    assert pipelines.reads_files(rows(FILES).interleave(tf.data.TFRecordDataset))
    assert pipelines.not_by_files(rows(FILES).interleave(lambda name: tf.data.TFRecordDataset(name).skip(1))) == ""
    assert not pipelines.reads_files(rows().batch(2))


CSV = tf.data.experimental.CsvDataset


@pytest.mark.parametrize("data", [CSV(FILES, [0.0]), rows(FILES).interleave(lambda name: CSV(name, [0.0]))])
def test_comma_separated_files_are_none_that_tensorflow_divides(data: Any) -> None:
    assert not pipelines.reads_files(data.batch(2))


@pytest.mark.parametrize(
    "read", [tf.data.TFRecordDataset, tf.data.TextLineDataset, fixed], ids=["records", "lines", "fixed"]
)
def test_files_are_too_few_where_a_worker_would_have_none(read: Callable[[Any], Any]) -> None:
    assert pipelines.few_files(read(FILES[0]).batch(2), 2)
    assert pipelines.few_files(rows(FILES[:1]).shuffle(9).interleave(read).map(lambda one: one), 2)
    assert pipelines.few_files(read(FILES).batch(2), 3)
    assert not pipelines.few_files(read(FILES).batch(2), 2)
    assert not pipelines.few_files(read(rows(FILES[:1]).repeat()), 2)
    assert not pipelines.few_files(rows(FILES[:1]).filter(lambda _: True).interleave(read), 2), "not known"
    assert not pipelines.few_files(rows(VALUES[:1]).batch(2), 2), "no files"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (lambda: rows().batch(2), lambda: rows(VALUES.copy()).batch(2), True),
        (lambda: rows().shuffle(9, seed=1), lambda: rows().shuffle(9, seed=2), True),
        (lambda: noisy(1), lambda: noisy(2), True),
        (generated, generated, True),
        (lambda: rows().batch(2), lambda: rows(VALUES + 1).batch(2), False),
        (lambda: rows(), lambda: rows(VALUES[::2]), False),
        (lambda: rows(), lambda: rows(VALUES[::-1]), False),
        (lambda: rows().shard(2, 0), lambda: rows().shard(2, 1), False),
        (lambda: rows().batch(2), lambda: rows().batch(3), False),
        (lambda: records(), lambda: records(FILES[1:]), False),
        (lambda: lines(), lambda: lines(), True),
        (lambda: lines(FILES[:1]), lambda: lines(FILES[1:]), False),
        (lambda: fixed(FILES[:1]), lambda: fixed(FILES[1:]), False),
        (lambda: rows().filter(lambda one: one[0] < 3), lambda: rows().filter(lambda one: one[0] >= 3), False),
        (lambda: rows().filter(lambda one: one[0] < 3), lambda: rows().filter(lambda one: one[0] < 4), False),
    ],
)
def test_two_workers_see_whether_their_pipelines_are_the_same(
    one: Callable[[], Any], other: Callable[[], Any], same: bool
) -> None:
    parts = pipelines.parts_of(one())
    rows().map(lambda value: value + 1)  # counts names
    assert (pipelines.parts_of(other()) == parts) == same


def test_a_file_is_the_same_wherever_it_lies_and_another_with_another_size(tmp_path: Path) -> None:
    for folder, content in (("first", b"12"), ("second", b"34"), ("third", b"567")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "data").write_bytes(content)
    first, second, third = (
        pipelines.parts_of(rows([str(tmp_path / folder / "data")])) for folder in ("first", "second", "third")
    )
    assert first == second
    assert first != third


def test_a_large_tensor_is_seen_by_rows_from_all_over_it() -> None:
    values = np.zeros((2**16, 64), "float32")
    before = pipelines.digest_of(tf.constant(values))
    values[-(2**15) :] = 1
    assert pipelines.digest_of(tf.constant(values)) != before


def same(one: Any) -> Any:
    return one


def in_any_order(data: Any) -> Any:
    return data.map(same, 2, False)


ANY_ORDER: dict[str, tuple[Callable[[], Any], str]] = {
    "map, by position": (lambda: in_any_order(rows()).batch(2), "parallel_map"),
    "batch": (lambda: rows().batch(2, num_parallel_calls=2, deterministic=False), "parallel_batch"),
    "interleave": (
        lambda: rows().interleave(rows, num_parallel_calls=2, deterministic=False), "parallel_interleave",
    ),
    "interleave, by position": (lambda: rows().interleave(rows, 2, 1, 2, False).batch(2), "parallel_interleave"),
    "in the function of flat_map": (lambda: rows().flat_map(lambda one: in_any_order(rows(one))), "parallel_map"),
    "in the function of interleave": (
        lambda: records(FILES).map(tf.strings.length).interleave(
            lambda one: rows([[one]]).interleave(rows, num_parallel_calls=2, deterministic=False)
        ), "parallel_interleave",
    ),
    "in a function of a function": (
        lambda: rows().flat_map(lambda one: rows(one).window(2).flat_map(in_any_order)), "parallel_map",
    ),
    "as the options say": (lambda: rows().map(same, 2).interleave(rows, num_parallel_calls=2).batch(2), ""),
    "deterministic": (lambda: rows().map(same, 2, True).interleave(rows, 2, 1, 2, True), ""),
    "one call at a time": (lambda: rows().interleave(rows, deterministic=False).map(same, deterministic=False), ""),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The `deterministic` argument has no effect")
@pytest.mark.parametrize("cell", ANY_ORDER)
def test_a_step_that_gives_examples_in_any_order_is_found(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # So that it is put back.
    monkeypatch.setattr(tf.data.Dataset, "interleave", tf.data.Dataset.interleave)
    replace(tf.data.Dataset, "interleave", pipelines.interleave, library="tensorflow")
    made, step = ANY_ORDER[cell]
    assert pipelines.in_any_order(made()) == step


@pytest.mark.parametrize("data", [rows().batch(2), rows().repeat().batch(2), generated().batch(1)])
def test_the_first_batch_is_noted_and_the_data_stay_the_same(data: Any) -> None:
    noted: list[Any] = []
    seen = pipelines.noting_first(data, noted.append)
    assert seen.element_spec == data.element_spec
    assert int(seen.cardinality()) == int(data.cardinality())
    for one, other in zip(seen.take(3), data.take(3), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(noted) == 1
    assert [len(one) for one in noted] == [1]
