"""Files that cannot be used end the job before it trains: one line with the file or the option, and what to do."""

import csv
import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import tensorflow as tf

from dtj_trainer.data.open_files import open_files
from dtj_trainer.data.source import diagnosing_data_errors
from dtj_trainer.errors import UsageError
from log_lines import log_lines
from trainer.data_files import CLASSES, FORMATS, configured, example, opened, taken, write


def refusal(where: Path | str, *arguments: str, numbers: bool = False) -> str:
    with pytest.raises(UsageError) as refused:
        opened(Path(where), *arguments, numbers=numbers)
    text = str(refused.value)
    assert "\n" not in text
    return text


def table(folder: Path, text: str) -> Path:
    path = folder / "data.csv"
    path.write_text(text)
    return path


def test_a_directory_without_files_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path).startswith(
        f"--data-dir={tmp_path}: no files there; give a directory, a file, or a pattern"
    )
    assert refusal(tmp_path / "nowhere").startswith(f"--data-dir={tmp_path}/nowhere: no files there")


def test_files_of_no_format_or_of_several_ask_for_the_format(tmp_path: Path) -> None:
    (tmp_path / "data.xls").write_text("x")
    assert "no format of" in refusal(tmp_path)
    write(tmp_path / "more", "csv")
    (tmp_path / "more" / "notes.txt").write_text("x")
    assert "files of several formats (csv, text); give --data-format" in refusal(tmp_path / "more")
    assert opened(tmp_path / "more", "--data-format=csv").classes == CLASSES


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    data = write(tmp_path / "data", "csv")
    assert refusal(data, "--label-column=price") == (
        f"--label-column=price: no such column in {data}/part-0.csv; it has x, third, label"
    )
    assert refusal(data, "--columns=size").startswith("--columns=size: no such column in")


@pytest.mark.parametrize(
    ("row", "cells", "printed"),
    [
        (30, "7,,7", "column width is empty; fix it"),
        (300, "7,NA,7", "column width is 'NA', and not a number"),
        (30, "7,NA,7", "column width is 'NA', and not a number"),
        (30, "7,1O.5,7", "column width is '1O.5', and not a number"),
        (300, "7,nan,7", "column width is 'nan', and not a number"),
        (30, "7,inf,7", "column width is 'inf', and not a number"),
        (30, "7,-1e39,7", "column width is '-1e39', and not a number"),
        (30, "7,1,2,7", "it has 4 cells, and the header has 3"),
        (300, "7", "it has 1 cell"),
        (20, "7,7,NA", "column label (--label-column) is 'NA', and not a number"),
        (20, "7,7,", "column label (--label-column) is empty"),
        (20, "7,7,  ", "column label (--label-column) is empty"),
        (20, "7,7,\u00a0", "column label (--label-column) is empty"),
        (300, "7,0x1A,7", "column width is '0x1A', and not a number"),
        (30, "7,1_000,7", "column width is '1_000', and not a number"),
    ],
)
def test_a_cell_that_is_no_finite_number_is_named_with_its_column(
    tmp_path: Path, row: int, cells: str, printed: str
) -> None:
    rows = [f"{n},{n / 2},{n}" for n in range(400)]
    rows[row] = cells
    data = table(tmp_path, "size,width,label\n" + "\n".join(rows) + "\n")
    # NA may be the name of a class.
    for numbers in (True,) if cells == "7,7,NA" else (True, False):
        assert refusal(data, numbers=numbers).startswith(f"{data}: record {row + 1}: {printed}")


def test_a_column_of_words_is_refused_unless_it_is_left_out_and_columns_and_classes_are_shown(tmp_path: Path) -> None:
    data = table(
        tmp_path, "x,size,label\n" + "".join(f"{n},{'small' if n % 3 else 'big'},{n % 2}\n" for n in range(40))
    )
    assert refusal(data) == (
        f"{data}: record 1: column size is 'big', and not a number (leave out columns of words with --columns); "
        "fix it, or remove it"
    )
    with log_lines() as printed:
        opened(data, "--columns=x")
    assert any(line.endswith("2 classes: 0, 1") for line in printed)
    assert "data: inputs: columns x" in printed


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("\nx,label\n1,a\n2,b\n", "its first line is empty; a csv file needs a header and rows"),
        ("x,x,label\n1,2,a\n", "column 1 has the name x of another; name each, or leave it out with --columns"),
        (",x,label\n0,1,a\n", "column 1 has no name; name each, or leave it out with --columns"),
        ("", "empty; a csv file needs a header and rows"),
        ("x,label\n", "a header only; a csv file needs a header and rows"),
    ],
    ids=["empty line", "twice", "no name", "nothing", "header"],
)
def test_a_table_without_rows_or_with_a_header_that_does_not_name_each_column_is_refused(
    tmp_path: Path, text: str, printed: str
) -> None:
    data = table(tmp_path, text)
    assert refusal(data) == f"{data}: {printed}"


@pytest.mark.parametrize(
    ("rows", "printed"),
    [
        ('1,a,0\n2,"a\nb",1\n', "record 2: column note"),
        ('1,a,0\n\n2,a,"1\n"\n', "record 3: column label"),
        ('1,a,0\n2,"say ""so\nand"" on",1\n', "record 2: column note"),
        ("", "its first line: column note"),
    ],
    ids=["a text", "the label", "quotes", "the header"],
)
def test_a_line_break_in_a_quoted_cell_is_named(tmp_path: Path, rows: str, printed: str) -> None:
    header = "x,note,label\n" if rows else 'x,"note\n",label\n'
    data = table(tmp_path, header + (rows or "1,a,0\n") + "3,a,0\n4,b,1\n" * 20)
    line = refusal(data, "--columns=x")
    assert line.startswith(f"{data}: {printed} has a line break in a quoted cell, or no closing quote: '")
    assert "; write each row in one line, or read the file in a function of --data" in line
    with data.open(newline="") as file:
        assert any("\n" in cell for row in csv.reader(file) for cell in row)


def test_numbers_whose_differences_float32_cannot_hold_are_shown(tmp_path: Path) -> None:
    text = "x,time,label\n" + "".join(f"{n},{1_700_000_001 + n},{n / 3}\n" for n in range(40))
    with log_lines() as printed:
        opened(table(tmp_path, text), numbers=True)
    assert "data: inputs: columns x, time (rounded by up to 40)" in printed


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    for part, mark in enumerate(("\ufeff", "")):
        (tmp_path / f"{part}.csv").write_text(f'{mark}label,"x"\n' if part else f"{mark}label, x\n")
        with (tmp_path / f"{part}.csv").open("a") as file:
            file.write("".join(f"{n % 2},{n}\n" for n in range(20)))
        (tmp_path / f"{part}.tsv").write_text(f"{mark}good\tday\n" + "bad\tday\ngood\tnight\n" * 10)
    assert opened(tmp_path / "*.csv").classes == ("0", "1")
    assert opened(tmp_path / "*.tsv").classes == ("bad", "good")


@pytest.mark.parametrize(
    ("labels", "printed"),
    [
        (
            "caf\u00e9 cafe\u0301",
            "labels 'cafe\\u0301' ({0}) and 'caf\\xe9' ({0}) are both there; write them in one way",
        ),
        ("good good\u200b", "labels 'good' ({0}) and 'good\\u200b' ({0}) are both there"),
        ("1 1.0 2", "labels '1' ({0}) and '1.0' ({0}) are both there"),
    ],
)
def test_one_label_that_is_written_in_two_ways_is_not_two_classes(tmp_path: Path, labels: str, printed: str) -> None:
    data = table(tmp_path, "x,label\n" + "".join(f"{n},{label}\n" for n in range(9) for label in labels.split(" ")))
    assert printed.format(data) in refusal(data)


@pytest.mark.parametrize("form", ["images", "text"])
def test_directories_that_look_alike_are_not_two_classes(tmp_path: Path, form: str) -> None:
    data = write(tmp_path / "data", form)
    for old, new in zip(CLASSES, ("caf\u00e9", "cafe\u0301"), strict=True):
        (data / old).rename(data / new)
    assert "labels 'cafe\\u0301' (" in (line := refusal(data))
    assert line.endswith(" are both there; write them in one way")


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([f"{n}.0" for n in range(12)], tuple(f"{n}.0" for n in range(12))),
        (["2.5", "-1e1", "10", "9", "0.30"], ("-1e1", "0.30", "2.5", "9", "10")),
        (["90071992547409930", "90071992547409929"], ("90071992547409929", "90071992547409930")),
        (["10", "9", "nan"], ("10", "9", "nan")),
        (["10", "9", "b"], ("10", "9", "b")),
    ],
    ids=["float", "of several forms", "longer than float64", "not a number", "a word"],
)
def test_labels_that_are_all_numbers_are_classes_in_the_order_of_their_values(
    tmp_path: Path, labels: list[str], classes: tuple[str, ...]
) -> None:
    data = table(tmp_path, "x,label\n" + "".join(f"{n},{label}\n" for n in range(9) for label in labels))
    assert opened(data).classes == classes


def test_labels_that_float32_tells_apart_are_classes_of_their_own(tmp_path: Path) -> None:
    labels = (1.0, 0.1, 1e-7, 2e-7, 100000.1, 100000.11, -0.25)
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for number in range(8 * len(labels)):
            value = tf.train.FloatList(value=[labels[number % len(labels)]])
            writer.write(example(number, label=tf.train.Feature(float_list=value)))
    assert opened(tmp_path).classes == ("-0.25", "1e-07", "2e-07", "0.1", "1", "100000.102", "100000.109")


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    rows = "x,label\n" + "1,caf\u00e9\n2,tea\n" * 20
    (tmp_path / "data.csv").write_bytes(rows.encode("latin-1"))
    line = "{}: label b'caf\\xe9' is no UTF-8 text; save the file as UTF-8"
    assert refusal(tmp_path / "data.csv") == line.format(tmp_path / "data.csv")
    (tmp_path / "data.tsv").write_bytes("tea\tgreen\nmilk\tau caf\u00e9\n".encode("latin-1") * 20)
    line = "{}: record 2: it is no UTF-8 (save the file as UTF-8); fix it, or remove it"
    assert refusal(tmp_path / "data.tsv") == line.format(tmp_path / "data.tsv")
    for form in ("csv", "tsv"):
        (tmp_path / f"data.{form}").write_bytes(rows.encode("utf-16"))
        assert "its text is UTF-16 or no text at all; save it as UTF-8" in refusal(tmp_path / f"data.{form}")


def test_hidden_directories_are_no_classes_and_what_is_left_out_is_shown(tmp_path: Path) -> None:
    data = write(tmp_path / "data", "images")
    (data / "odd" / ".ipynb_checkpoints").mkdir()
    (data / "odd" / ".ipynb_checkpoints" / "1-checkpoint.png").write_bytes(b"")
    (data / "notes.md").write_text("")
    with log_lines() as printed:
        assert opened(data).classes == CLASSES
    left_out = f"{data}/notes.md, {data}/odd/.ipynb_checkpoints/1-checkpoint.png"
    assert f"data: 2 files left out: {left_out}" in printed
    assert "data: inputs: images of 4x6x3" in printed
    (data / "more.png").write_bytes(b"")
    assert f"{data}/more.png is next to the directories of the classes; move it away, or into" in refusal(data)


def test_a_directory_in_that_of_a_class_is_no_class_of_its_own(tmp_path: Path) -> None:
    data = write(tmp_path / "data", "images")
    (data / "odd" / "extra").mkdir()
    next(data.glob("odd/*.png")).rename(data / "odd" / "extra" / "one.png")
    wanted = (
        f"{data}/odd/extra is in the directory of another class, {data}/odd; move its files up, or the directory out"
    )
    assert refusal(data) == f"--data-dir={data}: {wanted}"
    (data / "odd" / "extra").rename(data / "odd" / "odd")
    assert opened(data).classes == CLASSES


@pytest.mark.parametrize(
    ("form", "holds", "task"),
    [
        ("csv", "rows of numbers", "image-classification"),
        ("text", "texts", "tabular-regression"),
        ("images", "images", "text-classification"),
        ("tfrecord", "rows of numbers", "image-classification"),
    ],
)
def test_files_of_another_task_are_refused(tmp_path: Path, form: str, holds: str, task: str) -> None:
    data = write(tmp_path / "data", form)
    with pytest.raises(UsageError, match=f"^--data-dir={data}: holds {holds}, and the task {task} takes "):
        open_files(configured(data), numbers=False, task=task)


def test_files_with_different_headers_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "data", "csv")
    (tmp_path / "data" / "part-9.csv").write_text("x,label,third\n1,odd,1\n")
    assert refusal(tmp_path / "data").startswith(f"{tmp_path}/data/part-9.csv: its header is not that of")


def test_words_are_no_numbers_to_be_predicted(tmp_path: Path) -> None:
    assert refusal(write(tmp_path / "data", "csv"), numbers=True).startswith(
        f"{tmp_path}/data/part-0.csv: record 1: column label (--label-column) is 'even', and not a number (this task"
    )
    (tmp_path / "data.txt").write_text("1\tday\n" * 10 + "good\tday\n")
    assert refusal(tmp_path / "data.txt", numbers=True).startswith(
        f"{tmp_path}/data.txt: record 11: its label is 'good', and this task predicts numbers"
    )
    assert "directories of images are classes" in refusal(write(tmp_path / "images", "images"), numbers=True)


def test_one_class_alone_is_nothing_to_learn(tmp_path: Path) -> None:
    printed = refusal(table(tmp_path, "x,label\n" + "1,same\n" * 40))
    assert printed == f"--data-dir={tmp_path}/data.csv: every label is same; there is nothing to distinguish"
    write(tmp_path / "images", "images")
    assert "one directory only (odd)" in refusal(tmp_path / "images" / "odd")


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    write(tmp_path / "data", "tfrecord", examples=400)
    path = tmp_path / "data" / "part-2.tfrecord"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    assert refusal(tmp_path / "data").startswith(f"{path}: record ")


def records(folder: Path, odd: int | None = None, **features: tf.train.Feature) -> Path:
    """A file of 30, of which one has other features, or all."""
    path = folder / "data.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(30):
            writer.write(example(number, **(features if odd in (None, number) else {})))
    return path


@pytest.mark.parametrize(
    ("feature", "printed"),
    [
        (tf.train.Feature(float_list=tf.train.FloatList(value=[1])), "feature x has 1 value, not 2"),
        (tf.train.Feature(float_list=tf.train.FloatList(value=[1, 2, 3])), "feature x has 3 values, not 2"),
        (tf.train.Feature(int64_list=tf.train.Int64List(value=[1, 2])), "feature x is of kind int, not float"),
        (tf.train.Feature(), "feature x is missing"),
        (
            tf.train.Feature(float_list=tf.train.FloatList(value=[1, float("nan")])),
            "feature x has a value that is NaN or infinite",
        ),
    ],
)
def test_a_record_whose_feature_is_another_one_is_named(
    tmp_path: Path, feature: tf.train.Feature, printed: str
) -> None:
    path = records(tmp_path, 1, x=feature)
    assert refusal(path) == f"{path}: record 2: {printed}; fix it, or remove it"


@pytest.mark.parametrize("form", ["csv", "tfrecord"])
def test_columns_have_one_order_however_they_are_named_and_the_label_is_none_of_them(tmp_path: Path, form: str) -> None:
    path = records(tmp_path, third=tf.train.Feature(float_list=tf.train.FloatList(value=[2])))
    if form == "csv":
        path = table(tmp_path, "x,third,label\n" + "".join(f"{n},2,{n % 2}\n" for n in range(30)))
    one, other = (
        next(iter(opened(path, f"--columns={names}").validation(batch=1)))[0] for names in ("x,third", "third,x")
    )
    assert one.numpy().tolist() == other.numpy().tolist()
    assert refusal(path, "--columns=x,label") == "--columns: label is the label (--label-column); name the others"


@pytest.mark.parametrize(
    ("column", "printed"),
    [
        ("y", "no such feature in {}; it has label, rows, x"),
        (
            "rows",
            "a label of 3 values in {}; write one value for each record, such as the number of its class",
        ),
    ],
)
def test_a_label_that_is_not_there_or_has_several_values_is_refused(tmp_path: Path, column: str, printed: str) -> None:
    path = records(tmp_path, rows=tf.train.Feature(int64_list=tf.train.Int64List(value=[0, 1, 0])))
    assert refusal(path, f"--label-column={column}") == f"--label-column={column}: {printed.format(path)}"


@pytest.mark.parametrize(
    ("label", "printed"),
    [
        (tf.train.Feature(bytes_list=tf.train.BytesList(value=[b" "])), "feature label (--label-column) is empty"),
        (
            tf.train.Feature(float_list=tf.train.FloatList(value=[float("nan")])),
            "feature label has a value that is NaN",
        ),
    ],
)
def test_a_label_that_names_no_class_is_refused(tmp_path: Path, label: tf.train.Feature, printed: str) -> None:
    assert refusal(records(tmp_path, label=label)).startswith(f"{tmp_path}/data.tfrecord: record 1: {printed}")


def test_whole_numbers_that_float32_rounds_are_named_in_each_format(tmp_path: Path) -> None:
    numbers = [2**53 + 3 * number + 1 for number in range(30)]
    (tmp_path / "d.csv").write_text("id,label\n" + "".join(f"{n},{n % 2}\n" for n in numbers))
    (tmp_path / "d.tsv").write_text("".join(f"{n}\ta day\n" for n in numbers))
    with tf.io.TFRecordWriter(str(tmp_path / "d.tfrecord")) as writer:
        for n in numbers:
            writer.write(example(n % 2, id=tf.train.Feature(int64_list=tf.train.Int64List(value=[n]))))
    with log_lines() as printed:
        opened(tmp_path / "d.csv")
        opened(tmp_path / "d.tsv", numbers=True)
        opened(tmp_path / "d.tfrecord", "--columns=id")
        opened(tmp_path / "d.tfrecord", "--columns=x", "--label-column=id", numbers=True)
    assert [line for line in printed if line.startswith("data: inputs: ")] == [
        "data: inputs: columns id (rounded by up to 88)",
        "data: inputs: lines of text, behind a label (rounded by up to 88) and a tab",
        "data: inputs: features id (int [1]) (rounded by up to 88)",
        "data: inputs: features x (float [2]); label id (rounded by up to 88)",
    ]


@pytest.mark.parametrize(("kind", "remedy"), [("GZIP", "give the files names that end in .gz"), ("ZLIB", "ZLIB")])
def test_a_tfrecord_file_that_is_compressed_is_named_as_such(tmp_path: Path, kind: str, remedy: str) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "data.tfrecord"), kind) as writer:
        writer.write(b"a record")
    line = refusal(tmp_path)
    assert line.startswith(f"{tmp_path}/data.tfrecord: compressed by {kind.lower()}; ")
    assert remedy in line


COMPRESSED = gzip.compress(b"good\tday\nbad\tday\n" * 5000)


@pytest.mark.parametrize(
    "content",
    [COMPRESSED[:-1], COMPRESSED[:-8], COMPRESSED[: len(COMPRESSED) // 2], COMPRESSED * 2 + COMPRESSED[:-4]],
    ids=["a byte", "what follows the data", "half", "the third of three streams"],
)
@pytest.mark.parametrize("name", ["z.tsv.gz", "z.TSV.GZ"])
def test_a_compressed_file_whose_end_is_missing_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "a.tsv.gz").write_bytes(COMPRESSED)
    (tmp_path / name).write_bytes(content)
    line = f"{tmp_path}/{name}: its end is missing, as after an interrupted copy; copy or write it again"
    assert refusal(tmp_path) == line
    assert refusal(tmp_path / "a.tsv.gz", f"--held-out={tmp_path}/{name}") == line


def test_records_of_a_compressed_file_that_is_cut_between_two_of_them_are_not_all(tmp_path: Path) -> None:
    path = tmp_path / "data.tfrecord.gz"
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for number in range(30):
            writer.write(example(number))
            writer.flush()
    path.write_bytes(path.read_bytes()[:-8])
    assert refusal(path).startswith(f"{path}: its end is missing")


def test_a_file_that_is_no_tfrecord_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.tfrecord").write_text("no record at all, but long enough to be read as one")
    assert refusal(tmp_path).startswith(f"{tmp_path}/data.tfrecord: record 1: ")


def test_a_line_without_a_label_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("good\tday\n" * 10 + "bad weather\n" + "bad\tday\n" * 10)
    remedy = "a line without a tab; write label<TAB>text; fix it, or remove it"
    assert refusal(tmp_path) == f"{tmp_path}/data.txt: record 11: {remedy}"
    (tmp_path / "data.txt").write_text("one line\n")
    assert "its lines have no tab; write label<TAB>text" in refusal(tmp_path)
    (tmp_path / "data.txt").write_text("good\tday\n" * 10 + " \tweather\n" + "bad\tday\n" * 10)
    assert refusal(tmp_path).startswith(f"{tmp_path}/data.txt: record 11: its label is empty")
    (tmp_path / "data.txt").write_text("1\tday\n" * 10 + "0x1A\tweather\n")
    assert "record 11: its label is '0x1A', and this task predicts numbers" in refusal(tmp_path, numbers=True)


@pytest.mark.parametrize("form", ["csv", "text"])
def test_a_label_that_comes_into_the_files_during_a_run_is_named_with_its_record(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"data.{'tsv' if form == 'text' else 'csv'}"
    rows = [f"{'odd' if row % 2 else 'even'}\t{row}" if form == "text" else f"{row},{row % 2}" for row in range(40)]
    text = "\n".join([*(["x,label"] if form == "csv" else []), *rows, ""])
    path.write_text(text)
    source = opened(path)
    path.write_text(text.replace("odd\t33", "new\t33").replace("\n33,1", "\n33,7"))
    with (
        pytest.raises(
            UsageError, match=rf"^{path}: record 34: a label that was not seen before; fix it, or remove it$"
        ),
        diagnosing_data_errors(source),
    ):
        taken(source.batches(batch=8, seed=0, first_step=0), 10)


def test_held_out_files_must_be_some_and_of_known_classes(tmp_path: Path) -> None:
    data = write(tmp_path / "data", "csv")
    assert f"these are all files of --data-dir={data}; name others" in refusal(data, f"--held-out={data}/*.csv")
    assert refusal(data, f"--held-out={tmp_path}/none").startswith(f"--held-out={tmp_path}/none: no files there")
    images = write(tmp_path / "images", "images")
    other = write(tmp_path / "other", "images")
    (other / CLASSES[0]).rename(other / "neither")
    assert "its directory is not a class of" in refusal(images, f"--held-out={other}")
    text = write(tmp_path / "text", "text")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "all.tsv").write_text("odd\tthis is 1\neven\tthis is 2\n")
    assert refusal(text, f"--held-out={tmp_path}/test/all.tsv") == (
        f"{tmp_path}/test/all.tsv: its directory is not a class of {text}; they are even, odd"
    )


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder that also a user without root's rights gets to."""
    with TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.parametrize("place", [0, -1], ids=["first", "last"])
@pytest.mark.parametrize("form", [*FORMATS, "gz"])
def test_a_file_that_may_not_be_read_is_named_with_the_cause(readable: Path, form: str, place: int) -> None:
    data = write(readable / "data", "csv" if form == "gz" else form)
    path = sorted(path for path in data.rglob("*") if path.is_file())[place]
    if form == "gz":
        path.write_bytes(gzip.compress(path.read_bytes()))
        path = path.rename(f"{path}.gz")
    path.chmod(0)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        assert refusal(data, "--cache=memory") == (
            f"{path}: cannot be read (Permission denied); check the volume and its rights"
        )
    finally:
        os.seteuid(user)
