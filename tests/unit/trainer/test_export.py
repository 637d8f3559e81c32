"""What surrounds an exported model: its formats, its files, and converters that fail. Without TensorFlow."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dtj_launch.progress import ProgressStore
from dtj_trainer.config.outputs import FORMATS
from dtj_trainer.config.parsing import parse
from dtj_trainer.export import conversion
from dtj_trainer.export.conversion import ConversionFailed
from dtj_trainer.export.versions import Bundle, measure, new_draft, publish
from dtj_trainer.process.ending import leave_report

SOURCE = Path(__file__).resolve().parents[3] / "trainer-image"
BY_HAND = "find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"


def model(folder: Path, version: str = "1") -> Path:
    """Files as those of a SavedModel, in an order that is not the one of their names as text."""
    path = folder / version
    for name in ("saved_model.pb", "variables/variables.index", "assets/ä", "assets/Z", "assets.extra", "tfjs/a b"):
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(name.encode() * 1000)
    return path


def test_tensorflow_js_is_accepted_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tensorflowjs").mkdir()
    (tmp_path / "tensorflowjs" / "__init__.py").write_text("raise AssertionError('imported too early')")
    monkeypatch.syspath_prepend(tmp_path)
    assert parse(["--export-formats=TensorFlowJS"], {}).export_formats == ("SavedModel", "TensorFlowJS")


class TestABundle:
    def test_its_digest_is_what_the_documented_command_prints(self, tmp_path: Path) -> None:
        path = model(tmp_path)
        by_hand = subprocess.run(["bash", "-c", BY_HAND], cwd=path, capture_output=True, text=True, check=True).stdout
        assert measure(path, []).digest == f"sha256:{by_hand.split()[0]}"
        assert BY_HAND in (Path(__file__).parents[3] / "docs" / "export.md").read_text()

    @pytest.mark.parametrize("change", ["content", "name", "more"])
    def test_its_digest_is_another_for_other_files(self, tmp_path: Path, change: str) -> None:
        path = model(tmp_path)
        before = measure(path, [])
        file = path / "assets" / "Z"
        if change == "content":
            file.write_bytes(file.read_bytes().replace(b"Z", b"Y"))
        elif change == "name":
            file.rename(path / "assets" / "Y")
        else:
            (path / "empty").touch()
        after = measure(path, [])
        assert after.size == before.size
        assert after.digest != before.digest

    def test_its_size_is_that_of_its_files(self, tmp_path: Path) -> None:
        path = model(tmp_path)
        assert measure(path, []).size == sum(file.stat().st_size for file in path.rglob("*") if file.is_file())

    def test_it_is_in_the_termination_message_with_the_parts_of_the_last_report_that_fit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DTJ_TERMINATION_LOG", str(tmp_path / "words"))
        bundle = Bundle(path="/é" * 500, formats=FORMATS, size=2**50, digest="sha256:" + 64 * "a")
        for metrics, left in ({"loss": 0.5}, {"loss": "0.5"}), ({f"metric {n}" * 9: 0.5 for n in range(32)}, None):
            board = ProgressStore()
            board.update(step=7, export=bundle.document(), metrics=metrics)
            leave_report(board.document())
            words = (tmp_path / "words").read_text()
            assert len(words.encode()) <= 4096
            assert words.count("\n") == 1
            read = json.loads(words)
            assert read["export"] == bundle.document()
            assert (read["progress"]["step"], read["progress"].get("metrics")) == (7, left)


class TestDrafts:
    @staticmethod
    def begun(directory: Path, job: str) -> subprocess.Popen[str]:
        """A process that writes a draft, and waits."""
        code = (
            "import pathlib, sys\n"
            "from dtj_trainer.export.versions import new_draft\n"
            "with new_draft(pathlib.Path(sys.argv[1]), job=sys.argv[2]) as draft:\n"
            "    draft.mkdir()\n"
            "    print(draft, flush=True)\n"
            "    sys.stdin.read()\n"
        )
        return subprocess.Popen(
            [sys.executable, "-c", code, str(directory), job],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )  # fmt: skip

    def test_those_of_killed_attempts_of_the_job_are_removed_and_no_others(self, tmp_path: Path) -> None:
        (tmp_path / ".draft-1-TFLite").mkdir()
        runs = [self.begun(tmp_path, job) for job in ("mine", "mine", "mine-1", "other")]
        for run in runs:
            assert run.stdout
        killed, lives, *others = [Path(run.stdout.readline().strip()) for run in runs if run.stdout]
        for run in (runs[0], *runs[2:]):
            run.kill()
            run.wait()
        with new_draft(tmp_path, job="mine") as draft:
            draft.mkdir()
            assert {path for path in tmp_path.iterdir() if path.is_dir()} == {
                draft, lives, *others, tmp_path / ".draft-1-TFLite",
            }  # fmt: skip
        assert not draft.exists()
        runs[1].communicate()
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(killed.name) or path == lives]


class TestPublishing:
    def test_the_version_is_one_above_the_highest(self, tmp_path: Path) -> None:
        for name in ("1", "9", "10", "latest", ".draft-11"):
            (tmp_path / name).mkdir()
        assert publish(model(tmp_path, ".draft"), tmp_path) == tmp_path / "11"
        assert (tmp_path / "11" / "saved_model.pb").exists()
        assert not (tmp_path / ".draft").exists()

    def test_a_version_that_another_job_publishes_in_the_meantime_is_left_to_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        theirs, mine = model(tmp_path, "1"), model(tmp_path, ".draft")
        (mine / "mine").touch()
        monkeypatch.setattr(Path, "iterdir", lambda _: iter(()))  # looked before theirs was there
        assert publish(mine, tmp_path) == tmp_path / "2"
        assert not (theirs / "mine").exists()

    def test_what_cannot_be_moved_is_an_error_and_no_endless_search(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            publish(tmp_path / "no such draft", tmp_path)


class TestAConverterThatFails:
    """It is a process; here, of a program that plays it."""

    @pytest.fixture
    def plays(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
        """Puts a shell script in the place of Python."""

        def play(script: str) -> None:
            program = tmp_path / "python"
            program.write_text(f"#!/bin/bash\n{script}\n")
            program.chmod(0o755)
            monkeypatch.setattr(sys, "executable", str(program))

        return play

    def test_is_reported_in_its_own_words(self, plays: Callable[[str], None]) -> None:
        plays("echo some detail >&2; echo noise; echo the model is too round; exit 1")
        with pytest.raises(ConversionFailed) as failed:
            conversion.add("TFLite", Path("/e/1"))
        assert str(failed.value) == (
            "export as TFLite: the model is too round; the SavedModel is safe in /e/1; "
            "leave TFLite out of the formats (--export-formats, export.formats of a job)"
        )
        assert failed.value.exit_code == 1

    @pytest.mark.parametrize(
        ("script", "words"),
        [
            ("printf 'Traceback\\n  here\\nKeyError: 5\\n' >&2; exit 1", "export as TFLite: KeyError: 5; "),
            ("kill -9 $$", r"was ended by signal 9 \(the kernel kills so when memory runs out"),
            ("exit 3", "the converter exited with code 3"),
        ],
        ids=["last line of its traceback", "signal", "exit code"],
    )
    def test_is_recognized_by_how_it_ended(self, plays: Callable[[str], None], script: str, words: str) -> None:
        plays(script)
        with pytest.raises(ConversionFailed, match=words):
            conversion.add("TFLite", Path("/e/1"))

    def test_is_not_waited_for_without_end_and_leaves_no_draft(
        self, plays: Callable[[str], None], tmp_path: Path
    ) -> None:
        draft = conversion.draft_of(tmp_path / "1", "TensorFlowJS")
        plays(f"mkdir '{draft}'; exec sleep 600")
        with pytest.raises(ConversionFailed, match=r"was not done after 0\.5 s"):
            conversion.add("TensorFlowJS", tmp_path / "1", limit=0.5)
        assert not draft.exists()

    def test_sees_no_cluster_and_no_accelerator(
        self, plays: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TF_CONFIG", "{}")
        monkeypatch.setenv("DTJ_ROLE", "worker")
        plays(f"env > '{tmp_path}/seen'")
        conversion.add("TFLite", Path("/e/1"))
        seen = (tmp_path / "seen").read_text()
        assert "CUDA_VISIBLE_DEVICES=-1" in seen
        assert not any(line.startswith(("TF_CONFIG", "DTJ_")) for line in seen.splitlines())


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part in it is Linux's")
def test_a_converter_does_not_outlive_its_trainer(tmp_path: Path) -> None:
    """The pipe closes when the last process that holds it has ended."""
    (tmp_path / "numpy.py").write_text("import sys, time; print('converting', file=sys.stderr); time.sleep(600)")
    command = ["-m", "dtj_trainer.export", "TFLite", str(model(tmp_path))]
    code = f"import subprocess, sys; subprocess.run([sys.executable, *{command!r}])"
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}:{SOURCE}"}
    with subprocess.Popen([sys.executable, "-c", code], env=environ, stderr=subprocess.PIPE, text=True) as trainer:
        assert trainer.stderr is not None
        assert trainer.stderr.readline() == "converting\n"
        trainer.kill()
        assert trainer.stderr.read() == ""


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ([], "usage: python -m dtj_trainer.export {TFLite,TensorFlowJS} DIRECTORY_OF_A_SAVED_MODEL"),
        (["SavedModel", "x"], "usage: python -m dtj_trainer.export {TFLite,TensorFlowJS} DIRECTORY_OF_A_SAVED_MODEL"),
        (["TFLite", "/no/model"], "/no/model: no SavedModel; give the directory that holds saved_model.pb"),
    ],
)
def test_the_converters_own_command_line_is_checked(
    arguments: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert conversion.main(arguments) == 2
    assert capsys.readouterr().out == printed + "\n"


def test_its_exit_code_is_kept_where_its_words_find_no_room() -> None:
    command, environ = [sys.executable, "-m", "dtj_trainer.export"], {**os.environ, "PYTHONUNBUFFERED": ""}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, cwd=SOURCE, env=environ, stdout=full, check=False)
    assert done.returncode == 2


def test_a_missing_converter_is_named_by_the_command_line_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert conversion.main(["TensorFlowJS", str(model(tmp_path))]) == 2
    assert (
        capsys.readouterr().out == "TensorFlowJS: the package tensorflowjs is not installed here; see docs/export.md\n"
    )
