"""What a reader types, as the documents say it, in their order: it works, on this machine.

All commands and all Python that no marker keeps away; see tests/support/snippets.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import textwrap
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from loopback import free_ports
from support.command_line import install
from support.local_runs import MARK, marked_processes, new_mark
from support.snippets import BY_CI, ROOT, blocks, documents
from trainer_environment import trainer_python

pytestmark = pytest.mark.timeout(600)

SETTING = next(line for block in blocks(ROOT / "docs/quickstart.md") for line in block.lines if "PATH=" in line)
"""With it, says that document, what the others call ``dtj`` and ``python`` is found in a checkout."""

DIGITS = "dtj run examples/digits.yaml"
BEFORE = dict.fromkeys(("docs/export.md", "docs/looking.md"), DIGITS)
"""What a document takes for done; it is typed once, whoever asks first."""

WHERE = {"docs/export.md": "dtj-runs/digits/latest/export/1"}
"""Where a document says that its commands are typed, if that is not the checkout."""


def commands(document: str) -> list[str]:
    """The commands of a document that need this machine alone, as they are typed."""
    found = [line for block in blocks(ROOT / document) if block.is_shell and not block.needs for line in block.lines]
    return [line for line in found if line not in BY_CI]


ALL = {document: commands(document) for document in (str(file.relative_to(ROOT)) for file in documents())}


@dataclass
class Desk:
    """A folder that looks like a checkout to whoever types there."""

    folder: Path
    mark: str = field(default_factory=new_mark)
    _known: dict[str, str] = field(default_factory=dict)

    def says(self, line: str, *, where: str = "", **environ: str) -> str:
        """What a command prints; it has to succeed. What documents repeat is run once."""
        once = f"{where}: {line.replace('.venv/bin/dtj', 'dtj')}"
        if once not in self._known:
            if line.startswith("python"):
                # Documents name alternatives, none of which goes on from the checkpoints of another.
                shutil.rmtree(self.folder / "dtj-output", ignore_errors=True)
            setting = SETTING if line.startswith(("python", "dtj", "cd ")) else "true"
            self._known[once] = self.run(
                "bash", "-euo", "pipefail", "-c", f"{setting}; cd ./{where}; {line}", **environ
            )
        return self._known[once]

    def run(self, *words: str, **environ: str) -> str:
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={**os.environ, "DTJ_TRAINER_PYTHON": trainer_python(), MARK: self.mark, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{words[-1]}\n{done.stdout}{done.stderr}"
        return done.stdout

    def close(self) -> None:
        """Raises AssertionError where a command has left processes behind; ends them."""
        left = marked_processes(self.mark)
        for process in left:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(process, signal.SIGKILL)
        assert left == []


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """It has this tree's ``dtj`` and examples, and files of somebody's own."""
    folder = tmp_path_factory.mktemp("desk")
    install(folder / ".venv" / "bin")
    (folder / ".venv-trainer").symlink_to(Path(trainer_python()).parents[1])
    for name in ("examples", "trainer-image"):
        (folder / name).symlink_to(ROOT / name)
    package = folder / "package"
    package.mkdir()
    for script in (folder / "train.py", package / "train.py"):
        script.symlink_to(ROOT / "examples" / "own_script" / "train.py")
    (package / "spirals.py").symlink_to(ROOT / "examples" / "own_model" / "spirals.py")
    (package / "module.py").write_text("from package.spirals import model as build, points as dataset\n")
    write_data(folder / "data")
    desk = Desk(folder)
    yield desk
    desk.close()


def write_data(folder: Path) -> None:
    """Pictures of two kinds of flowers, and prices of two things."""
    for kind, colour in (("daisy", b"\xff\xff\xff"), ("poppy", b"\xff\x00\x00")):
        (folder / "flowers" / kind).mkdir(parents=True)
        for number in range(40):
            (folder / "flowers" / kind / f"{number}.png").write_bytes(png(colour))
    for part in range(2):
        rows = [f"{size},{colour},{size * 2}\n" for size in range(40) for colour in range(2)]
        (folder / f"part-{part}.csv").write_text("size,colour,price\n" + "".join(rows))


def png(colour: bytes) -> bytes:
    """A square of one colour: signature, header, pixels line by line behind a zero, end (RFC 2083)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    pixels = zlib.compress((b"\0" + colour * 8) * 8)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize("document", [document for document, typed in ALL.items() if typed])
def test_the_commands_of_a_document_work_one_after_the_other(desk: Desk, document: str) -> None:
    if document in BEFORE:
        desk.says(BEFORE[document])
    for line in ALL[document]:
        desk.says(line, where=WHERE.get(document, ""))
    assert marked_processes(desk.mark) == []


def test_the_digest_by_hand_is_that_of_the_run(desk: Desk) -> None:
    desk.says(DIGITS)
    [by_hand] = ALL["docs/export.md"]
    result = json.loads((desk.folder / "dtj-runs/digits/latest/tensorboard/result.json").read_text())
    assert desk.says(by_hand, where=WHERE["docs/export.md"]).split()[0] == result["export"]["digest"].partition(":")[2]


PIECES = [
    block
    for page in ("docs/bring-your-own.md", "docs/scripts.md")
    for block in blocks(ROOT / page)
    if block.language == "python"
]
AROUND: dict[str, tuple[tuple[int, int] | None, str]] = {
    "class Histogram:": (None, ""),
    "strategy = tf.distribute.MultiWorkerMirroredStrategy()": (
        None,
        """
        import keras
        import tensorflow as tf

        dataset = tf.data.Dataset.from_tensor_slices(([[1.0], [2.0]], [[2.0], [4.0]])).batch(1)
        validation = dataset

        def build():
            return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        """,
    ),
    "from dtj_trainer.callbacks import DTJCallback, report": (
        (120, 1000),
        """
        import keras
        import tensorflow as tf

        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile(loss="mse")
        dataset = tf.data.Dataset.from_tensor_slices(([[1.0], [2.0]], [[2.0], [4.0]])).batch(1)
        loss = 0.5
        """,
    ),
    "def learn(batch):": (
        None,
        """
        import dtj_trainer
        import keras
        import tensorflow as tf

        def build():
            global dataset
            dataset = tf.data.Dataset.from_tensor_slices(([[1.0], [2.0]], [[2.0], [4.0]])).repeat(64)
            return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]), keras.optimizers.Adam(0.01)

        """,
    ),
    "import dtj_trainer": (
        (1000, 1000),
        """
        import keras
        import tensorflow as tf

        examples = tf.data.Dataset.from_tensor_slices(([[1.0], [2.0]], [[2.0], [4.0]]))
        dataset = examples.repeat(500).batch(1, drop_remainder=True)

        def build():
            return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]), keras.optimizers.Adam(0.01)

        def learn(inputs, targets):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(inputs) - targets) ** 2)
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
            return loss

        @tf.function
        def train_step(batch):
            return s.strategy.reduce(tf.distribute.ReduceOp.MEAN, s.strategy.run(learn, args=batch), axis=None)
        """,
    ),
}
"""For each snippet of these pages, by its first line: the last step and the number of steps that it shows
(None: a script that shows none), and the code to which a reader adds it (empty: the snippet holds actions)."""

LOOK = """
import os, urllib.request
print(urllib.request.urlopen(f"http://127.0.0.1:{os.environ['DTJ_STATUS_PORT']}/status").read().decode())
"""


@pytest.mark.parametrize("place", range(len(PIECES)), ids=lambda place: PIECES[place].title)
def test_the_python_of_a_document_runs_in_the_code_that_it_is_for(desk: Desk, place: int) -> None:
    piece = PIECES[place].text
    shown, around = AROUND[piece.splitlines()[0]]
    script = desk.folder / f"piece{place}.py"
    if not around:
        script.write_text(piece)
        output = desk.says(f"python -m dtj_trainer --actions {script.stem}:actions --epochs 5")
        assert re.search(r"^100 \d", output, re.MULTILINE), output
        return
    if shown is None:
        script.write_text(textwrap.dedent(around) + piece)
        checks = "s.check(" in piece
        options = "--strategy Mirrored --logical-cpus 2" if checks else ""
        output = desk.says(f"python -m dtj_trainer --script {script.name} {options}")
        assert not checks or "checked learn: 2 replicas compute the gradients of one" in output
        return
    script.write_text(textwrap.dedent(around) + piece + LOOK)
    (port,) = free_ports(1)
    output = desk.says(f"python {script.name}", DTJ_STATUS_PORT=str(port), DTJ_CHECKPOINT_DIR=f"checkpoints-{place}")
    status = json.loads(output.splitlines()[-1])
    assert (status["step"], status["totalSteps"]) == shown


def test_epochs_resume_in_the_middle_of_one_with_the_same_bits(desk: Desk) -> None:
    piece = (ROOT / "examples" / "own_loop" / "epochs.py").read_text()
    script, stopped = desk.folder / "epochs.py", desk.folder / "epochs_stopped.py"
    script.write_text(piece)
    turn = "        loss = train_step(batch)\n"
    assert piece.count(turn) == 1
    stop = "        if step == 43:\n            import os, signal\n            os.kill(os.getpid(), signal.SIGTERM)\n"
    stopped.write_text(piece.replace(turn, turn + stop))

    whole = desk.says(f"python {script.name}", DTJ_CHECKPOINT_DIR="epochs-whole").splitlines()
    exited = desk.says(f"python {stopped.name} || echo exited $?", DTJ_CHECKPOINT_DIR="epochs-stopped").splitlines()
    resumed = desk.says(f"python ./{script.name}", DTJ_CHECKPOINT_DIR="epochs-stopped").splitlines()

    assert exited[-1] == "exited 42"
    epochs = [line for line in whole if line.startswith("epoch ")]
    assert len(epochs) == 4
    again = [line for line in resumed if line.startswith("epoch ")]
    assert again
    assert again == epochs[-len(again) :]
    assert len([line for line in exited if line.startswith("epoch ")]) + len(again) == 4
    assert resumed[-1] == whole[-1]
    assert whole[-1].startswith("weights ")
