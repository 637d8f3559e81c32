"""Files of every format as a source: the order of the batches, where a run resumes, and who gets what."""

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from dtj_trainer.data import scan
from dtj_trainer.data import source as source_module
from dtj_trainer.data.full_batches import FullBatches
from dtj_trainer.data.open_files import open_files
from dtj_trainer.data.record_files import FILES_AT_ONCE, chunks
from dtj_trainer.data.source import diagnosing_data_errors
from dtj_trainer.data.worker_shards import Share
from dtj_trainer.distribution.stall_watch import data_watch
from dtj_trainer.errors import UsageError
from dtj_trainer.process.watchdog import Watchdog
from log_lines import log_lines
from trainer.data_files import FORMATS, configured, example, numbers_of, opened, picture, taken, write

SOURCES = [*((form, "none") for form in FORMATS), ("csv", "memory"), ("images", "memory")]


@pytest.fixture(params=SOURCES, ids="-".join)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> FullBatches:
    """60 examples of each format, cached in each way; 20 records are shuffled among each other."""
    form, cache = request.param
    found = opened(write(tmp_path / "data", form), f"--cache={cache}")
    found.window = 20
    return found


def test_each_example_is_to_learn_from_or_held_out_and_has_its_label(source: FullBatches) -> None:
    validation = [pair for batch in taken(source.validation(batch=5), -1) for pair in batch]
    learned = [pair for batch in taken(source.batches(batch=1, seed=1), source.examples) for pair in batch]
    assert len(validation) == source.validation_examples
    assert 8 <= len(validation) <= 16
    assert sorted(number for number, _ in validation + learned) == list(range(60))
    assert all(source.classes[label] in ("even", "0") for number, label in validation + learned if number % 2 == 0)
    assert all(source.classes[label] in ("odd", "1") for number, label in validation + learned if number % 2)
    assert taken(source.validation(batch=60), 1) == [validation]
    assert source.validation(batch=5).element_spec[0].shape.is_compatible_with(source.input_spec.shape)


def test_a_resumed_run_gets_exactly_the_batches_after_its_own(source: FullBatches) -> None:
    for draw in range(2):
        drawn = random.Random(draw)
        batch, first = drawn.randint(1, 70), drawn.randint(1, 20)
        whole = taken(source.batches(batch=batch, seed=draw), first + 3)
        assert taken(source.batches(batch=batch, seed=draw, first_step=first), 3) == whole[first:], (batch, first)
        assert {len(rows) for rows in whole} == {batch}


def test_each_epoch_sees_every_example_once_in_an_order_of_its_own(source: FullBatches) -> None:
    stream = [pair for batch in taken(source.batches(batch=1, seed=5), 3 * source.examples) for pair in batch]
    epochs = [stream[start : start + source.examples] for start in range(0, len(stream), source.examples)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert len({tuple(sorted(epoch)) for epoch in epochs}) == 1


def test_the_order_follows_from_the_seed_and_from_nothing_else(source: FullBatches) -> None:
    first = taken(source.batches(batch=7, seed=3), 12)
    tf.random.set_seed(77)
    assert taken(source.batches(batch=7, seed=3), 12) == first
    assert taken(source.batches(batch=7, seed=tf.constant(3, tf.int64)), 12) == first
    assert taken(source.batches(batch=7, seed=4), 12) != first


@pytest.mark.parametrize("workers", [2, 3])
def test_the_shares_of_the_workers_put_together_are_the_global_batches(source: FullBatches, workers: int) -> None:
    whole = taken(source.batches(batch=13, seed=9, first_step=2), 6)
    shares = [Share(worker=worker, workers=workers) for worker in range(workers)]
    parts = [taken(source.share_of_batches(batch=13, seed=9, first_step=2, share=share), 6) for share in shares]
    assert [[pair for part in parts for pair in part[step]] for step in range(6)] == whole


def test_each_of_a_workers_replicas_gets_its_part_in_turn(source: FullBatches) -> None:
    whole = taken(source.batches(batch=12, seed=9), 3)
    share = Share(worker=1, workers=2, replicas=2)
    parts = taken(source.share_of_batches(batch=12, seed=9, first_step=0, share=share), 6)
    assert parts == [rows[start : start + 3] for rows in whole for start in (6, 9)]


def test_no_worker_has_to_ask_the_others_whether_the_data_have_ended(source: FullBatches) -> None:
    assert int(source.batches(batch=4, seed=0).cardinality()) == tf.data.INFINITE_CARDINALITY


def test_what_the_data_service_serves_comes_to_every_example_soon(source: FullBatches) -> None:
    passes = 8
    seen = Counter(pair for batch in taken(source.unordered(rows=10), passes * source.examples // 10) for pair in batch)
    assert len(seen) == source.examples
    assert max(seen.values()) <= 3 * passes


def test_inputs_that_are_encoded_are_shared_and_resumed_like_the_others(tmp_path: Path) -> None:
    source = opened(write(tmp_path / "data", "text"))
    spec = tf.TensorSpec((None, 1), tf.int32)
    encoded = source.map_inputs(lambda texts: tf.strings.length(texts)[:, tf.newaxis], spec)
    assert encoded.input_spec == spec
    assert source.input_spec.dtype == tf.string
    inputs, _ = next(iter(encoded.batches(batch=4, seed=1, first_step=3)))
    assert inputs.dtype == tf.int32
    assert inputs.shape == (4, 1)
    assert next(iter(encoded.validation(batch=4)))[0].dtype == tf.int32


def test_files_of_one_record_each_are_held_out_as_well(tmp_path: Path) -> None:
    source = opened(write(tmp_path / "data", "tfrecord", examples=40, files=40))
    assert (source.examples, source.validation_examples) == (32, 8)


def test_columns_can_be_chosen_and_numbers_be_predicted(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b,price\n" + "".join(f"{n},{2 * n},{n / 4}\n" for n in range(40)))
    source = opened(tmp_path / "data.csv", "--label-column=price", "--columns=b", numbers=True)
    assert source.classes == ()
    inputs, labels = next(iter(source.batches(batch=10, seed=0)))
    assert labels.dtype == tf.float32
    assert (inputs[:, 0] == labels * 8).numpy().all()


def test_lines_can_carry_their_label_before_a_tab(tmp_path: Path) -> None:
    (tmp_path / "all.tsv").write_text("".join(f"{'good' if n % 2 else 'bad'}\tnumber\t{n}\n\n" for n in range(20)))
    source = opened(tmp_path)
    assert source.classes == ("bad", "good")
    texts, labels = next(iter(source.batches(batch=10, seed=0)))
    assert all(text.startswith(b"number\t") for text in texts.numpy())
    assert [number % 2 for number in numbers_of(texts)] == labels.numpy().tolist()


def test_images_are_brought_to_one_size(tmp_path: Path) -> None:
    write(tmp_path / "data", "images")
    (tmp_path / "data" / "odd" / "099.png").write_bytes(picture(99, height=9, width=9))
    first = opened(tmp_path / "data")
    assert first.input_spec.shape.as_list() == [None, 4, 6, 3]
    assert sum(len(batch) for batch in taken(first.batches(batch=10, seed=0), 6)) == 60
    assert opened(tmp_path / "data", "--image-size=8x5").input_spec.shape.as_list() == [None, 8, 5, 3]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_pictures_are_decoded_from_files_and_from_tfrecords(tmp_path: Path, kind: str) -> None:
    for label in "01":
        (tmp_path / "images" / label).mkdir(parents=True)
    with tf.io.TFRecordWriter(str(tmp_path / "p.tfrecord")) as writer:
        for number in range(20):
            name = tmp_path / "images" / str(number % 2) / f"{number}.{kind.lower()}"
            Image.new("RGB", (6, 4), (number, number, number)).save(name, kind, lossless=True)
            content = tf.train.Feature(bytes_list=tf.train.BytesList(value=[name.read_bytes()]))
            writer.write(example(number, image=content))
    images = opened(tmp_path / "images")
    assert images.examples + images.validation_examples == 20
    assert all(number % 2 == label for ((number, label),) in taken(images.batches(batch=1, seed=0), 10))
    source = opened(tmp_path / "p.tfrecord", "--columns=image")
    assert source.input_spec.shape.as_list() == [None, 4, 6, 3]
    ((number, label), *_), *_ = taken(source.batches(batch=4, seed=0), 1)
    assert source.classes[label] == str(number % 2)


@pytest.mark.parametrize("form", FORMATS)
def test_data_that_take_long_to_read_are_no_stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    config = configured(write(tmp_path / "data", form), "--cache=memory")
    fed: list[Watchdog] = []
    monkeypatch.setattr(Watchdog, "feed", lambda watchdog: fed.append(watchdog))
    with data_watch(config):
        begun = len(fed)
        open_files(config, numbers=False)
    assert len(fed) > begun


def test_large_records_are_looked_at_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_at(content: bytes) -> int:
        """Bytes, of all files that are read in turn."""
        image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[content]))
        with tf.io.TFRecordWriter(str(tmp_path / "p.tfrecord")) as writer:
            for number in range(20):
                writer.write(example(number, image=image))
        sizes: list[int] = []
        monkeypatch.setattr(scan, "chunks", lambda *given, size: sizes.append(size) or chunks(*given, size=size))
        opened(tmp_path / "p.tfrecord", "--columns=x")
        (size,) = sizes
        return FILES_AT_ONCE * size * len(content)

    assert looked_at(bytes(1000)) == 16 * 1024 * 1000
    assert 32 * 2**20 < looked_at(bytes(2**20)) <= 64 * 2**20
    assert looked_at(bytes(5 * 2**20)) == 16 * 5 * 2**20, "one of each file"


def test_what_was_seen_in_the_files_is_remembered_until_they_change(tmp_path: Path) -> None:
    write(tmp_path / "data", "csv")
    keeps = ("--checkpoint-dir", str(tmp_path))
    examples = opened(tmp_path / "data", *keeps).examples
    (seen,) = tmp_path.glob("data-*.json")
    known = json.loads(seen.read_text())
    known["training"][0] -= 1
    seen.write_text(json.dumps(known))
    assert opened(tmp_path / "data", *keeps).examples == examples - 1
    with (tmp_path / "data" / "part-0.csv").open("a") as file:
        file.write("60,0,even\n" * 20)
    assert opened(tmp_path / "data", *keeps).examples > examples + 10


def test_a_correction_of_the_same_size_is_seen(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("x,label\n" + "1,cat\n2,dog\n" * 20 + "3,dgo\n")
    keeps = (tmp_path / "data.csv", "--checkpoint-dir", str(tmp_path))
    assert opened(*keeps).classes == ("cat", "dgo", "dog")
    (tmp_path / "data.csv").write_text((tmp_path / "data.csv").read_text().replace("dgo", "dog"))
    assert opened(*keeps).classes == ("cat", "dog")


def steps(source: FullBatches, strategy: Any, model: Callable[[Any], Any]) -> None:
    """Ten batches through a model, in a graph."""
    batches = iter(strategy.experimental_distribute_dataset(source.batches(batch=8, seed=0)))

    @tf.function
    def step() -> Any:
        return strategy.run(model, args=(next(batches)[0],))

    with diagnosing_data_errors(source):
        for _ in range(10):
            step()


STRATEGIES: dict[str, Callable[[], Any]] = {
    "default": tf.distribute.get_strategy,
    "one device": lambda: tf.distribute.OneDeviceStrategy("cpu:0"),
    "mirrored": lambda: tf.distribute.MirroredStrategy(["cpu:0"]),
}


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_an_error_of_the_model_is_told_at_once_and_one_of_the_data_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: Callable[[], Any]
) -> None:
    source = opened(write(tmp_path / "data", "csv", files=1))
    looked: list[FullBatches] = []
    diagnose = type(source).diagnose
    monkeypatch.setattr(type(source), "diagnose", lambda self, **given: looked.append(self) or diagnose(self, **given))
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
        steps(source, strategy(), lambda inputs: tf.gather([1, 2], tf.cast(inputs[:, 0], tf.int32)))
    assert not looked
    path = tmp_path / "data" / "part-0.csv"
    path.write_text(path.read_text().replace("\n33,", "\nx,"))
    with pytest.raises(UsageError, match=rf"^{path}: record 34: column x is 'x', and not a number"):
        steps(source, strategy(), lambda inputs: inputs)
    assert looked == [source]


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_a_record_that_is_damaged_while_it_is_trained_on_is_told_with_its_file(
    tmp_path: Path, strategy: Callable[[], Any]
) -> None:
    source = opened(write(tmp_path / "data", "tfrecord", files=1))
    (path,) = (tmp_path / "data").iterdir()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(UsageError, match=rf"^{path}: "):
        steps(source, strategy(), lambda inputs: inputs)


@pytest.mark.parametrize("form", FORMATS)
def test_the_search_for_a_damaged_record_ends_after_some_minutes_and_a_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    source = opened(write(tmp_path / "data", form))
    monkeypatch.setattr(source_module, "SEARCH_SECONDS", 0.0)
    with (
        log_lines() as printed,
        pytest.raises(tf.errors.InvalidArgumentError, match="odd"),
        diagnosing_data_errors(source),
    ):
        raise tf.errors.InvalidArgumentError(None, None, "odd [Op:IteratorGetNext]")
    line = f"{tmp_path}/data: what this error is of was not found in 0 s of reading; more was not read"
    assert f"warning: {line}" in printed
    if form == "csv":
        (tmp_path / "data" / "part-0.csv").write_text("x,third,label\n1,2,odd\nx,2,even\n")
        monkeypatch.setattr(scan, "SEARCH_SECONDS", 0.0)
        with pytest.raises(UsageError, match=r"/data: cannot be read .*; which record it is was not found in 0 s$"):
            opened(tmp_path / "data")


def test_records_are_looked_through_together_for_the_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{number},{number % 2}" for number in range(5000)]
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["x,label", *rows, ""]))
    source = opened(path)
    rows[4321] = "x,1"
    path.write_text("\n".join(["x,label", *rows, ""]))
    parsed: list[int] = []
    parse = type(source)._decode
    monkeypatch.setattr(type(source), "_decode", lambda self, given: parsed.append(1) or parse(self, given))
    fault = source.diagnose()
    assert re.match(rf"{path}: record 4322: column x is 'x'", str(fault))
    assert len(parsed) < 200


@pytest.mark.parametrize(
    ("content", "is_text"),
    [
        (bytes(range(256)), False),
        (np.zeros((4, 6), np.uint8).tobytes(), False),
        (np.linspace(0, 1, 24, dtype=np.float32).tobytes(), False),
        (tf.io.serialize_tensor(tf.linspace(0.0, 1.0, 24)).numpy(), False),
        ("caf\u00e9".encode("latin-1"), False),
        ("a caf\u00e9\nand \u8336".encode(), True),
        (b"", True),
    ],
    ids=["bytes", "zeros", "floats", "a tensor", "latin-1", "text", "nothing"],
)
def test_bytes_of_a_tfrecord_that_are_neither_picture_nor_text_are_no_texts_for_a_task(
    tmp_path: Path, content: bytes, is_text: bool
) -> None:
    path = tmp_path / "data.tfrecord"
    image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[content]))
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(20):
            writer.write(example(number, image=image))
    assert opened(path, "--columns=image").input_spec.dtype == tf.string, "a model of one's own may decode them"
    for task in ("text-classification", "image-classification"):
        try:
            open_files(configured(path, "--columns=image"), numbers=False, task=task)
            line = ""
        except UsageError as refused:
            line = str(refused)
        if not is_text:
            assert line == (
                f"{path}: feature image holds bytes that are no text in UTF-8 and no picture (PNG, JPEG, GIF, WebP); "
                "parse raw bytes and tensors in a function of --data, and write texts as UTF-8"
            )
        else:
            assert ("holds texts" in line) == (task == "image-classification")
