"""Which files are data, and which of them are held out: each counts once, by whichever names it is found."""

import gzip
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dtj_trainer.data.files import find
from dtj_trainer.data.full_batches import FullBatches
from dtj_trainer.errors import UsageError
from log_lines import log_lines
from trainer.adversaries import attempts, files
from trainer.data_files import CLASSES, opened, picture, taken, write


def pairs_of(stream: Any, count: int = -1) -> list[tuple[int, int]]:
    """(number, label) of the examples of so many batches, or of all."""
    return [pair for batch in taken(stream, count) for pair in batch]


def numbers_in(source: FullBatches) -> tuple[list[int], list[int]]:
    """What is to learn from and what is held out, in order."""
    learned = pairs_of(source.batches(batch=1, seed=1), source.examples)
    held_out = pairs_of(source.validation(batch=5))
    return sorted(number for number, _ in learned), sorted(number for number, _ in held_out)


@pytest.fixture
def nested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """60 examples in data, of which data/test has those from 40 on; the working directory is beside it."""
    write(tmp_path / "data", "csv", examples=40)
    (tmp_path / "data" / "test").mkdir()
    rows = "".join(f"{number},{number % 3},{CLASSES[number % 2]}\n" for number in range(40, 60))
    (tmp_path / "data" / "test" / "test.csv").write_text("x,third,label\n" + rows)
    (tmp_path / "link").symlink_to("data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("where", "held_out"),
    [
        ("data", "data/test"),
        ("data", "./data/test"),
        ("./data", "data//test"),
        ("data/", "{}/data/test/"),
        ("{}/data", "link/test"),
        ("link", "data/test/*.csv"),
        ("{}/link/../data", "data/test/test.csv"),
    ],
)
def test_held_out_files_are_not_learned_from_however_they_are_named(nested: Path, where: str, held_out: str) -> None:
    where, held_out = where.format(nested), held_out.format(nested)
    with log_lines() as printed:
        source = opened(where, f"--held-out={held_out}")
    assert numbers_in(source) == ([*range(40)], [*range(40, 60)])
    assert f"data: --held-out={held_out}: 1 files held out, 1 of them out of --data-dir" in printed


@pytest.mark.parametrize("form", ["csv", "tfrecord", "images"])
def test_a_held_out_file_that_is_a_hard_link_is_not_learned_from(tmp_path: Path, form: str) -> None:
    write(tmp_path / "data", form)
    names = sorted(path for path in (tmp_path / "data").rglob("*.*"))[::4]
    for path in names:
        other = tmp_path / "test" / path.relative_to(tmp_path / "data")
        other.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, other)
    learned, held_out = numbers_in(opened(tmp_path / "data", f"--held-out={tmp_path}/test"))
    assert len(held_out) == 15
    assert sorted(learned + held_out) == [*range(60)]


@pytest.mark.parametrize("form", ["csv", "images"])
def test_a_file_with_several_hard_links_counts_once(tmp_path: Path, form: str) -> None:
    write(tmp_path / "data", form)
    for path in sorted(path for path in (tmp_path / "data").rglob("*.*")):
        again = path.with_name(f"again-{path.name}")
        os.link(path, again)
        path.with_name(f"link-{path.name}").symlink_to(again)
    pattern = "data/*/*.png" if form == "images" else "data/*.csv"
    for where in ("data", pattern):
        learned, held_out = numbers_in(opened(tmp_path / where))
        assert sorted(learned + held_out) == [*range(60)], where


@pytest.mark.parametrize("name", ["part[1].csv", "what?.csv", "_*.csv"])
def test_a_file_whose_name_could_be_a_pattern_is_that_file(tmp_path: Path, name: str) -> None:
    data = write(tmp_path / "data", "csv", files=3)
    (data / "part-1.csv").rename(data / name)
    (data / "part-2.csv").rename(data / "part1.csv")
    learned, held_out = numbers_in(opened(data / name))
    assert sorted(learned + held_out) == [*range(1, 60, 3)]
    learned, held_out = numbers_in(opened(data / "part?.csv"))
    assert sorted(learned + held_out) == [*range(2, 60, 3)]


def test_patterns_that_match_the_same_files_hold_them_out(nested: Path) -> None:
    source = opened("data/*.csv", "--held-out=./data/part-[01].csv")
    learned, held_out = numbers_in(source)
    assert [number % 4 for number in learned] == [2, 3] * 10
    assert sorted(learned + held_out) == [*range(40)]


def test_linked_folders_and_files_count_once(tmp_path: Path) -> None:
    write(tmp_path / "data" / "v3", "csv")
    (tmp_path / "data" / "latest").symlink_to("v3")
    (tmp_path / "data" / "self").symlink_to(".")
    (tmp_path / "data" / "v3" / "up").symlink_to("..")
    (tmp_path / "data" / "copy.csv").symlink_to("v3/part-0.csv")
    (tmp_path / "other").symlink_to("data")
    for where in ("data", "other", "data/*/*.csv", "data/v3/part-*.csv"):
        learned, held_out = numbers_in(opened(tmp_path / where))
        assert sorted(learned + held_out) == [*range(60)], where


def test_folders_that_are_all_linked_with_each_other_are_walked_in_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "data", "csv")
    names = [f"of {number}" for number in range(8)]
    for one in names:
        (tmp_path / "data" / one).mkdir()
        for other in names:
            (tmp_path / "data" / one / other).symlink_to(f"../{other}")
    entered: list[str] = []
    scan = os.scandir

    def counted(path: str) -> Any:
        entered.append(path)
        assert len(entered) < 1000
        return scan(path)

    monkeypatch.setattr(os, "scandir", counted)
    found, _ = find(str(tmp_path / "data"), option="--data-dir", form=None)
    assert len(found.paths) == 4


def test_one_picture_in_two_classes_is_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "data", "images")
    (data / "odd" / "000.png").symlink_to("../even/000.png")
    with pytest.raises(UsageError, match=r"odd/000.png and .*even/000.png are one file in two classes"):
        opened(data)
    (data / "odd" / "000.png").rename(data / "even" / "copy.png")
    source = opened(data)
    assert source.examples + source.validation_examples == 60


@pytest.mark.parametrize("hidden", [".ipynb_checkpoints", "_old", "__MACOSX"])
def test_what_is_hidden_is_no_data_in_each_part_that_a_wildcard_matched(tmp_path: Path, hidden: str) -> None:
    data = write(tmp_path / "data", "images", examples=12)
    (data / hidden).mkdir()
    for number in range(12):
        (data / hidden / f"{number}.png").write_bytes(picture(100 + number))
    (data / "odd" / "._1.png").write_bytes(b"")
    for where in ("", "*/*.png", "*/0*.png"):
        source = opened(data / where)
        assert source.classes == CLASSES
        assert source.examples + source.validation_examples == 12


def test_a_folder_of_a_configmap_is_read_and_its_hidden_folders_are_by_their_names(tmp_path: Path) -> None:
    write(tmp_path / "config" / "..2026_11_28", "csv")
    (tmp_path / "config" / "..data").symlink_to("..2026_11_28")
    for part in range(4):
        (tmp_path / "config" / f"part-{part}.csv").symlink_to(f"..data/part-{part}.csv")
    for where in ("config", "config/..data", "config/..data/*.csv", "config/..2026_11_28"):
        source = opened(tmp_path / where)
        assert source.examples + source.validation_examples == 60, where
    assert opened(tmp_path / "config", f"--held-out={tmp_path}/config/..data/part-1.csv").examples == 45


def test_a_link_to_nothing_and_a_name_that_is_no_text_are_one_line(tmp_path: Path) -> None:
    data = write(tmp_path / "data", "images")
    (data / "odd" / "z.png").symlink_to("nowhere.png")
    with pytest.raises(UsageError, match=r"odd/z.png: a link to what is not there"):
        opened(data)
    (data / "odd" / "z.png").unlink()
    with open(os.fsencode(data / "odd") + b"/\xff.png", "wb") as file:
        file.write(picture(1))
    with pytest.raises(UsageError, match="its name is no UTF-8; rename it"):
        opened(data)


@pytest.mark.parametrize(
    ("form", "training", "other"),
    [("images", "train", "test"), ("text", "Training", "validation"), ("csv", "train", "val")],
)
def test_folders_of_training_and_test_files_below_one_are_named_with_the_option(
    tmp_path: Path, form: str, training: str, other: str
) -> None:
    write(tmp_path / "data" / training, form, examples=40)
    write(tmp_path / "data" / other, form, examples=20)
    line = (
        f"data: {tmp_path}/data: {training} and {other} are both learned from; to be judged by {other} alone, give "
        "its path with --held-out"
    )
    with log_lines() as printed:
        opened(tmp_path / "data")
    assert line in printed
    with log_lines() as printed:
        source = opened(tmp_path / "data", f"--held-out={tmp_path}/data/{other}")
    assert line not in printed
    assert Counter(map(len, numbers_in(source))) == {40: 1, 20: 1}


def test_text_held_out_in_files_of_its_own_has_the_class_of_its_own_directory(tmp_path: Path) -> None:
    write(tmp_path / "data" / "train", "text", examples=40)
    for number in range(40, 60):
        place = tmp_path / "data" / "test" / CLASSES[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number % 7}-{number}.txt").write_text(f"this is {number}\n")
    source = opened(tmp_path / "data", f"--held-out={tmp_path}/data/test")
    assert sorted(number for number, _ in pairs_of(source.validation(batch=5))) == [*range(40, 60)]
    assert all(number % 2 == label for number, label in pairs_of(source.validation(batch=5)))


def test_text_in_the_directories_of_its_classes_may_have_tabs(tmp_path: Path) -> None:
    for number in range(60):
        place = tmp_path / CLASSES[number % 2]
        place.mkdir(exist_ok=True)
        (place / f"{number}.txt").write_text("in\tcolumns\n" if number % 3 == 0 else "a line\n")
    source = opened(tmp_path)
    assert source.classes == CLASSES
    assert source.examples + source.validation_examples == 60


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("csv", ""), ("csv", "x,third,label\n"), ("csv", "x,third,label\n\n"), ("tfrecord", ""), ("text", ""),
        ("text", "\n \n"),
    ],
)  # fmt: skip
def test_a_part_without_records_is_no_fault_wherever_it_stands(tmp_path: Path, name: str, content: str) -> None:
    data = tmp_path / "data"
    if name == "text":
        data.mkdir()
        (data / "part-0.tsv").write_text("".join(f"{CLASSES[number % 2]}\tthis is {number}\n" for number in range(60)))
    else:
        write(data, name)
    ending = ".tsv" if name == "text" else f".{name}"
    for part in ("a", "part-1b", "z"):
        (data / f"{part}{ending}").write_text(content)
    learned, held_out = numbers_in(opened(data))
    assert sorted(learned + held_out) == [*range(60)]


@pytest.mark.parametrize("ending", [".gz", ".GZ"])
def test_a_compressed_file_of_several_streams_is_read_whole_and_one_of_no_bytes_has_no_records(
    tmp_path: Path, ending: str
) -> None:
    rows = [f"{number},{CLASSES[number % 2]}\n".encode() for number in range(60)]
    content = b"".join(map(gzip.compress, [b"x,label\n", *rows]))
    (tmp_path / f"a.CSV{ending}").write_bytes(content)
    (tmp_path / f"b.csv{ending}").write_bytes(b"")
    learned, held_out = numbers_in(opened(tmp_path))
    assert sorted(learned + held_out) == [*range(60)]


@pytest.mark.parametrize("seed", [5, 12])
def test_a_second_attempt_on_a_folder_whose_files_have_changed_reads_each_example_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = attempts.compose(seed, tmp_path)
    verdict = attempts.judge(folder)
    assert not verdict.fault, f"{folder}: {verdict}"


@pytest.mark.parametrize("seed", [5000, 5008, 5021, 5023])
def test_each_example_of_a_folder_composed_at_random_is_read_once_or_one_line_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = files.compose(seed, tmp_path)
    verdict = files.judge(folder)
    assert not verdict.fault, f"{folder}: {verdict}"


@pytest.mark.parametrize("below", ["", "train"])
@pytest.mark.parametrize("name", ["README.txt", "urls.txt", "LICENSE", "LICENSE.TXT", ".hidden.csv"])
def test_a_plain_file_beside_folders_of_pictures_is_left_out_and_named(tmp_path: Path, below: str, name: str) -> None:
    write(tmp_path / "data" / below if below else tmp_path / "data", "images")
    path = tmp_path / "data" / below / name
    path.write_text("what this is\n")
    with log_lines() as printed:
        source = opened(tmp_path / "data")
    assert source.classes == CLASSES
    assert source.examples + source.validation_examples == 60
    assert f"data: 1 files left out: {path}" in printed


@pytest.mark.parametrize("name", ["odd/1.txt", "texts/1.txt", "labels.csv", "labels.tsv", "more/a.tfrecord"])
def test_files_that_may_be_data_beside_pictures_ask_for_the_format(tmp_path: Path, name: str) -> None:
    data = write(tmp_path / "data", "images")
    (data / name).parent.mkdir(exist_ok=True)
    (data / name).write_text("1\t2\n")
    with pytest.raises(UsageError, match=r"files of several formats \(.*\); give --data-format, or a pattern such as"):
        opened(data)


def test_texts_beside_one_folder_of_figures_ask_for_the_format(tmp_path: Path) -> None:
    data = write(tmp_path / "data" / "figures", "images").parent
    for folder in (data / "figures").iterdir():
        for path in folder.iterdir():
            path.rename(data / "figures" / path.name)
        folder.rmdir()
    (data / "train.txt").write_text("odd\tone\neven\ttwo\n")
    with pytest.raises(UsageError, match=r"files of several formats \(images, text\)"):
        opened(data)


@pytest.mark.parametrize("form", ["images", "text"])
def test_an_example_beside_the_folders_of_the_classes_is_not_to_be_put_into_one_unseen(
    tmp_path: Path, form: str
) -> None:
    data = write(tmp_path / "data", form)
    path = data / ("urls.txt" if form == "text" else "one.png")
    path.write_text("http://localhost/1\n") if form == "text" else path.write_bytes(picture(1))
    with pytest.raises(UsageError) as refused:
        opened(data)
    assert str(refused.value) == (
        f"--data-dir={data}: {path} is next to the directories of the classes; move it away, or into the directory "
        "of its class"
    )


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("a.parquet", "read it in a function of your own with --data, or give --data-format if it is one of these"),
        ("a.npz", "read it in a function of your own with --data, or give --data-format if it is one of these"),
        ("a.jsonl.gz", "read it in a function of your own with --data, or give --data-format if it is one of these"),
        ("part-00000", "read it in a function of your own with --data, or give --data-format if it is one of these"),
        ("a.tar.gz", "unpack it"),
        ("a.zip", "unpack it"),
    ],
)
def test_a_file_of_a_format_that_is_not_read_gets_a_remedy_that_works(tmp_path: Path, name: str, remedy: str) -> None:
    (tmp_path / name).write_bytes(b"PAR1")
    for where in (tmp_path, tmp_path / name):
        with pytest.raises(UsageError) as refused:
            opened(where)
        assert str(refused.value) == (
            f"--data-dir={where}: no format of {tmp_path / name} known (tfrecord, csv, images, text); {remedy}"
        )
