"""Files that cannot be used end the job before it trains: one line with the file or the option, and what to do."""

import json
from pathlib import Path

import pytest
import tensorflow as tf

from dtj_trainer.config.parsing import parse
from dtj_trainer.data.choice import open_files
from dtj_trainer.errors import UsageError
from log_lines import log_lines
from trainer.data_files import CLASSES, example, opened, write

pytestmark = pytest.mark.trainer


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
        f"--label-column=price: no such column in {data}/part-0.csv; it has x, colour, label"
    )
    assert refusal(data, "--columns=size").startswith("--columns=size: no such column in")


def test_a_cell_that_is_no_number_is_named_with_its_row(tmp_path: Path) -> None:
    rows = [f"{n},{n % 2}" for n in range(500)]
    rows[400] = "many,1"
    data = table(tmp_path, "x,label\n" + "\n".join(rows))
    assert refusal(data).startswith(f"{data}: record 401: ")
    rows[400] = "7"
    data = table(tmp_path, "x,label\n" + "\n".join(rows))
    assert refusal(data).startswith(f"{data}: record 401: ")


def test_files_with_different_headers_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "data", "csv")
    (tmp_path / "data" / "part-9.csv").write_text("x,label,colour\n1,odd,red\n")
    assert refusal(tmp_path / "data").startswith(f"{tmp_path}/data/part-9.csv: its header is not that of")


@pytest.mark.parametrize(
    ("text", "printed"),
    [("", ": empty; a csv file needs a header and rows"), ("x,label\n", ": a header only; a csv file needs")],
    ids=["nothing", "header"],
)
def test_a_table_without_rows_is_refused(tmp_path: Path, text: str, printed: str) -> None:
    assert printed in refusal(table(tmp_path, text))


def test_words_are_no_numbers_to_be_predicted(tmp_path: Path) -> None:
    assert "column label (--label-column) holds words" in refusal(write(tmp_path / "data", "csv"), numbers=True)
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


def test_a_record_without_a_feature_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(30):
            writer.write(example(number) if number != 20 else tf.train.Example().SerializeToString())
    printed = refusal(path)
    assert printed.startswith(f"{path}: record 21: ")
    assert "x" in printed
    assert refusal(path, "--label-column=y") == f"--label-column=y: no such feature in {path}; it has label, x"


def test_a_file_that_is_no_tfrecord_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.tfrecord").write_text("no record at all, but long enough to be read as one")
    assert refusal(tmp_path).startswith(f"{tmp_path}/data.tfrecord: record 1: ")


def test_a_line_without_a_label_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("good\tday\n" * 10 + "bad weather\n" + "bad\tday\n" * 10)
    printed = refusal(tmp_path)
    assert printed.startswith(f"{tmp_path}/data.txt: record 11: ")
    assert "a line without a tab" in printed
    (tmp_path / "data.txt").write_text("one line\n")
    assert "its first line has no tab; write label<TAB>text" in refusal(tmp_path)


def test_held_out_files_must_be_others_and_of_known_classes(tmp_path: Path) -> None:
    data = write(tmp_path / "data", "csv")
    assert "is among the files to learn from as well" in refusal(data, f"--held-out={data}/part-1.csv")
    assert refusal(data, f"--held-out={tmp_path}/none").startswith(f"--held-out={tmp_path}/none: no files there")
    images = write(tmp_path / "images", "images")
    other = write(tmp_path / "other", "images")
    (other / CLASSES[0]).rename(other / "neither")
    assert "its directory is not a class of" in refusal(images, f"--held-out={other}")


def test_files_that_workers_cannot_divide_are_refused_and_those_that_can_are_reported(tmp_path: Path) -> None:
    data = write(tmp_path / "data", "csv", files=4)
    assert _chosen(data, "file", workers=3) == (
        "--shard=file: 4 files cannot be divided among 3 workers; give 3, 6, 9, … files, or --shard=data"
    )
    assert _chosen(data, "file", workers=2).startswith("data: sharding file: each worker reads 2 of 4 files")
    assert _chosen(data, "auto", workers=4).startswith("data: sharding file: each worker reads 1 of 4 files")
    assert _chosen(data, "auto", workers=3).startswith("data: sharding data: the workers share each batch")
    assert "leave it out" in _chosen(write(tmp_path / "images", "images"), "file", workers=2)


def test_a_text_is_not_cached_on_a_disk(tmp_path: Path) -> None:
    printed = refusal(write(tmp_path / "data", "text"), f"--cache={tmp_path / 'disk'}")
    assert printed.endswith("a text is read as it is, and gains nothing there; give --cache=memory or none")


def test_a_disk_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    printed = refusal(write(tmp_path / "data", "csv"), f"--cache={tmp_path / 'file' / 'below'}")
    assert printed.startswith(f"--cache={tmp_path}/file/below: cannot be written (Not a directory)")


def _chosen(data: Path, shard: str, *, workers: int) -> str:
    """What the leader of this many workers says of the sharding, or why it is refused."""
    cluster = {"worker": [f"w{number}:2222" for number in range(workers)]}
    environ = {
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}),
        "DTJ_STRATEGY": "MultiWorkerMirrored",
    }
    try:
        with log_lines() as printed:
            open_files(parse([f"--data-dir={data}", f"--shard={shard}"], environ), numbers=False)
    except UsageError as error:
        return str(error)
    (line,) = (line for line in printed if line.startswith("data: sharding"))
    return line
