"""Ends of a training, composed at random: it is killed, or fails, at an operation, and is started again until it ends.

A run that nothing disturbs is the judge. A sample is *equal* if at each end whatever looks whole is that run's to the
bit (checkpoints, exported models, the result), each start goes on from the newest whole checkpoint, and the last one
ends with the same weights, optimizer, step and result. A start that fails says so in one line. Parameter servers have
no such run: their workers are in another order each time. Not composed yet: TFLite and TensorFlow.js, the export of a
script, one machine of several that loses what was not flushed.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from dtj_launch.errors import NO_RESTART_HELPS
from trainer.adversaries.ending_task import AFTER, AWAY, BEFORE, BROKEN, FULL, KILL, POWER, TORN
from trainer.adversaries.judge import CRASH, EQUAL, HANG, WRONG, Verdict
from trainer.adversaries.ways import QUIET
from trainer.cluster import Job
from trainer.outcome import tensors
from trainer.stores import Store

PROGRAM = "trainer.adversaries.ending_task"
SECONDS = 240.0
"""In which a start ends, unless it hangs."""
_GATE_SECONDS = 30
"""For how long the others wait for one that is killed before it has met them."""
_ALL, _KEEP = 100, 2
"""Checkpoints."""
_MANY = 10_000
"""More operations than any run has."""
_TRAINING = (
    "--task=tabular-classification", "--batch-size=64", "--epochs=3", "--steps-per-call=4", "--checkpoint-every-steps=5"
)  # fmt: skip
_JUDGED = ("--validate-every=7", "--keep-best=val_loss")
_LOOP = Path(__file__).resolve().parents[3] / "examples" / "own_loop" / "train.py"
_SESSION = (f"--script={_LOOP}", "--checkpoint-every-steps=5", "--", "--steps=23")
_OWN = ("examplesPerSecond", "durationSeconds", "firstStep", "checkpointPath", "exportPath", "export")
"""What of result.json is a run's own."""


@dataclass(frozen=True)
class Course:
    """What is trained, and where its outputs go."""

    workers: int = 1
    bucket: bool = False
    memory: bool = False
    session: bool = False
    """A loop of a script's own, without an export and a result."""
    pipeline: bool = False
    """The first worker leads, and the others serve it."""

    def __str__(self) -> str:
        where = "bucket" if self.bucket else "folder"
        more = {"memory": self.memory, "session": self.session, "pipeline": self.pipeline}
        return ", ".join([f"{self.workers} workers", where, *(name for name, is_so in more.items() if is_so)])

    @property
    def arguments(self) -> tuple[str, ...]:
        """Of the trainer."""
        if self.session:
            return _SESSION
        return _TRAINING if self.pipeline else (*_TRAINING, *_JUDGED)

    @property
    def strategy(self) -> str:
        """By which it is trained."""
        return "OneDevice" if self.workers == 1 else "Pipeline" if self.pipeline else "MultiWorkerMirrored"


COURSES = (
    *[Course()] * 3, *[Course(bucket=True)] * 4, Course(workers=2), Course(workers=2, bucket=True),
    Course(workers=2, memory=True), Course(session=True), Course(workers=2, bucket=True, session=True),
    Course(workers=2, pipeline=True), Course(workers=2, bucket=True, pipeline=True),
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """What happens at one operation of one start of one worker."""

    name: str
    number: int
    moment: str = BEFORE
    how: str = KILL
    more: int = 0
    """So many more operations of this name fail after it, in this start."""
    worker: int = 0

    @property
    def ends(self) -> bool:
        """Whether the task ends there, and not only the operation."""
        return self.how in (KILL, POWER)

    def __str__(self) -> str:
        said = f"{self.how} {self.moment} '{self.name}' {self.number} of worker {self.worker}"
        return f"{said}, and {self.more} more" if self.more else said


@dataclass(frozen=True)
class End:
    """A course, and the faults of its starts, one after the other; then it is started once more."""

    course: Course
    faults: tuple[Fault, ...]
    seed: int | None = None

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.course}: {'; '.join(map(str, self.faults))}"


@dataclass
class Whole:
    """A run that nothing disturbs."""

    operations: list[Counter[str]]
    """By worker."""
    resumed: list[Counter[str]]
    """The same of a start that goes on from a checkpoint, and keeps as few as are kept in a sample."""
    checkpoints: Mapping[int, Mapping[str, bytes]]
    model: Mapping[str, bytes] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)


def compose(seed: int, whole: Callable[[Course], Whole]) -> End:
    """The end of this seed.

    Args:
        whole: the run of a course that nothing disturbs.
    """
    r = random.Random(seed)
    course = r.choice(COURSES)
    operations = [whole(course).operations, *([whole(course).resumed] if r.random() < 0.5 else [])]
    return End(course, tuple(_fault(r, course, one) for one in operations), seed)


def _fault(r: random.Random, course: Course, operations: Sequence[Counter[str]]) -> Fault:
    worker = r.choice([place for place, one in enumerate(operations) if one])
    counts = operations[worker]
    name = r.choice(sorted(counts))
    number = r.randrange(counts[name])
    together = name.startswith(("agreement", "wait_at", "set_key", "snapshot", "restore"))
    if together or r.random() < 0.6:
        tears = name.startswith(("write", "tensors", "model"))
        how = r.choice((KILL, POWER)) if course.workers == 1 else KILL
        return Fault(name, number, r.choice((BEFORE, TORN, AFTER) if tears else (BEFORE, AFTER)), how, worker=worker)
    if name.startswith("object"):
        return Fault(name, number, r.choice((BEFORE, AFTER)), AWAY, r.choice((0, _MANY)), worker)
    moments = (BEFORE, TORN) if name.startswith(("write", "tensors", "model")) else (BEFORE,)
    return Fault(name, number, r.choice(moments), r.choice((FULL, BROKEN)), r.choice((0, 1, _MANY)), worker)


@dataclass
class _Run:
    """The starts of one job."""

    course: Course
    folder: Path
    store: Store
    keep: int
    job: Job = field(init=False)

    def __post_init__(self) -> None:
        arguments = [f"--checkpoint-keep={self.keep}", *self.course.arguments]
        self.job = Job(
            self.folder, strategy=self.course.strategy, roles={"worker": self.course.workers}, arguments=arguments,
            program=("-m", PROGRAM), imported=True, exports=not self.course.session,
        )  # fmt: skip

    @property
    def prefix(self) -> str:
        """Of the objects of this run."""
        return self.folder.parent.name + "-" + self.folder.name

    def start(self, fault: Fault | None) -> dict[str, int] | None:
        """Exit codes of the tasks that end by themselves; None if one does not."""
        for path in (*self.folder.glob("*.hit"), *self.folder.glob("*.operations")):
            path.unlink()
        waits = f"--start-timeout={_GATE_SECONDS if fault else SECONDS:.0f}"
        given = self.job.arguments
        self.job.arguments = [waits if one.startswith("--start-timeout=") else one for one in given]
        for worker in range(self.course.workers):
            environ = {
                **QUIET,
                "TEST_FOLDER": str(self.folder),
                "TEST_OPERATIONS": str(self.folder / f"worker-{worker}.operations"),
                "TEST_FAULT": json.dumps(vars(fault)) if fault and fault.worker == worker else "",
                "DTJ_STORE_CACHE": str(self.folder / "cache"),
                **self.store.environ,
                "DTJ_STORE_RETRY_SECONDS": "1",
            }
            if self.course.memory:
                environ |= {
                    "DTJ_CHECKPOINT_MEMORY_DIR": str(self.folder / f"memory-{worker}"),
                    "DTJ_CHECKPOINT_MEMORY_EVERY_STEPS": "2",
                }
            if self.course.bucket:
                for name in ("CHECKPOINT", "LOG", *([] if self.course.session else ["EXPORT"])):
                    environ[f"DTJ_{name}_DIR"] = self.store.url(f"{self.prefix}/{_FOLDERS[name]}")
            self.job.start(f"worker-{worker}", environ=environ)
        try:
            codes = {one.name: one.wait(SECONDS) for one in self.job.ending}
        except TimeoutExpired:
            return None
        self.job.kill()
        return codes

    @property
    def hit(self) -> bool:
        """Whether the last start came to its fault."""
        return any(self.folder.glob("*.hit"))

    @property
    def operations(self) -> list[Counter[str]]:
        """Of the last start, by worker."""
        files = [self.folder / f"worker-{worker}.operations" for worker in range(self.course.workers)]
        return [Counter(file.read_text().splitlines() if file.exists() else ()) for file in files]

    def look(self) -> Path:
        """A folder with the outputs as they are now: what has no marker in a bucket is left out.

        Raises:
            Torn: a marker is there and what it stands for is not.
        """
        if not self.course.bucket:
            return self.folder
        seen = self.folder / "seen"
        shutil.rmtree(seen, ignore_errors=True)
        contents, start = self.store.contents, f"{self.prefix}/"
        keys = {key.removeprefix(start) for key in contents.list_keys(start)}
        for key in sorted(keys):
            folder, _, name = key.partition("/")
            if name.endswith(".complete"):
                self._fetch(seen, folder, name.removesuffix(".complete"), keys)
            elif folder == "logs":
                _write(seen / key, contents.read(start + key))
        return seen

    def _fetch(self, seen: Path, folder: str, name: str, keys: set[str]) -> None:
        contents, start = self.store.contents, f"{self.prefix}/"
        document = json.loads(contents.read(f"{start}{folder}/{name}.complete"))
        if folder == "export":
            for key in (key for key in keys if key.startswith(f"export/{name}/")):
                _write(seen / key, contents.read(start + key))
            if _digest_of(seen / folder / name) != document["digest"]:
                raise Torn(f"export {name} is marked, and is not what its marker says")
            return
        for file, digest in document["digests"].items():
            if f"{folder}/{file}" not in keys:
                raise Torn(f"{name} is marked, and {file} is not there")
            content = contents.read(f"{start}{folder}/{file}")
            if hashlib.sha256(content).hexdigest() != digest:
                raise Torn(f"{name} is marked, and {file} is another")
            _write(seen / folder / file, content)


_FOLDERS = {"CHECKPOINT": "checkpoints", "LOG": "logs", "EXPORT": "export"}


class Torn(Exception):
    """Something is taken for whole, and is not."""


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _digest_of(folder: Path) -> str:
    from dtj_trainer.export.versions import measure

    return measure(folder, ()).digest


def whole(course: Course, folder: Path, store: Store) -> Whole:
    """The run of this course that nothing disturbs, and what one does that goes on after it was killed."""
    run, again = (_Run(course, folder / str(keep), store, keep=keep) for keep in (_ALL, _KEEP))
    with run.job:
        codes = run.start(None)
        assert codes is not None
        assert set(codes.values()) == {0}, _words(run.job)
    with again.job:
        again.start(Fault("tensors", 2, AFTER))
        codes = again.start(None)
        assert codes is not None
        assert set(codes.values()) == {0}, _words(again.job)
    seen = run.look()
    operations, checkpoints = (run.operations, again.operations), _checkpoints(seen)
    if course.session:
        return Whole(*operations, checkpoints)
    result = json.loads((seen / "logs" / "result.json").read_text())
    return Whole(*operations, checkpoints, _model(seen / "export" / "1"), _plain(result))


def judge(end: End, expected: Whole, folder: Path, store: Store) -> Verdict:
    """Runs it."""
    run = _Run(end.course, folder, store, keep=_KEEP)
    hits = []
    try:
        with run.job:
            for fault in (*end.faults, None):
                newest = max(_checkpoints(run.look()), default=0)
                said = {name: len(replica.log) for name, replica in run.job.replicas.items()}
                codes = run.start(fault)
                if codes is None:
                    return Verdict(HANG, _words(run.job))
                if fault:
                    hits.append(run.hit)
                if problem := _ended(run, codes, fault, said) or _resumed(run, newest, said):
                    return problem
                _compare(run.look(), expected)
            if problem := _missing(run.look(), expected):
                return Verdict(WRONG, problem)
    except Torn as torn:
        return Verdict(WRONG, str(torn))
    return Verdict(EQUAL, f"{sum(hits)} of {len(hits)} faults")


def _missing(seen: Path, expected: Whole) -> str:
    """What a completed run has not left."""
    if max(_checkpoints(seen)) != max(expected.checkpoints):
        return "the last checkpoint is of another step"
    if not expected.result:
        return ""
    try:
        path = json.loads((seen / "logs" / "result.json").read_text())["exportPath"]
    except (OSError, KeyError) as error:
        return f"there is no result, or it names no model: {error}"
    versions = [int(one.name) for one in (seen / "export").iterdir() if one.name.isdecimal()]
    return "" if int(path.rpartition("/")[2]) == max(versions) else f"the result names {path}, and there are {versions}"


def _compare(seen: Path, expected: Whole) -> None:
    """That whatever looks whole is as expected.

    Raises:
        Torn: it is not.
    """
    for step, values in _checkpoints(seen).items():
        if values != expected.checkpoints.get(step, values):
            raise Torn(f"checkpoint {step} has other values")
    for path in (seen / "export").glob("*"):
        if path.name.isdecimal() and _model(path) != expected.model:
            raise Torn(f"export {path.name} is another model")
    for name in ("logs/result.json", "checkpoints/validation.json"):
        try:
            found = json.loads((seen / name).read_text())
        except FileNotFoundError:
            continue
        except ValueError as error:
            raise Torn(f"{name}: {error}") from None
        if name.endswith("result.json") and _plain(found) != expected.result:
            raise Torn(f"{name}: {_plain(found)} and not {expected.result}")


def _ended(run: _Run, codes: Mapping[str, int], fault: Fault | None, said: Mapping[str, int]) -> Verdict | None:
    """What is wrong with how a start ended."""
    if not fault or not run.hit:
        return None if set(codes.values()) == {0} else Verdict(CRASH, f"{codes}: {_words(run.job)}")
    for name, code in codes.items():
        log = run.job[name].log[said.get(name, 0) :]
        victim = name == f"worker-{fault.worker}"
        if victim and fault.ends and code != -9:
            return Verdict(CRASH, f"{name} ended with {code} and was to be killed: {_words(run.job)}")
        if "Traceback" in log or code not in (0, 1, 2, 75, *([-9] if victim and fault.ends else [])):
            return Verdict(CRASH, f"{name} ended with {code}: {log[-1500:]}")
        if code > 0:
            words = (run.folder / f"{name}.termination").read_text()
            if NO_RESTART_HELPS in words or not words.strip() or "\n" in words.strip():
                return Verdict(WRONG, f"{name} ended with {code}: {words}")
    return None


def _resumed(run: _Run, newest: int, said: Mapping[str, int]) -> Verdict | None:
    """Whether the leader, if it came so far, went on from the newest whole checkpoint."""
    log = run.job["worker-0"].log[said.get("worker-0", 0) :]
    found = re.search(r"^resumed: step (\d+)", log, re.M)
    if run.course.memory:
        return None  # there may be a later one in memory
    if found and int(found[1]) != newest:
        return Verdict(WRONG, f"went on from step {found[1]} and not {newest}")
    if not found and newest and "step " in log and re.search(r"^step \d+/", log, re.M):
        return Verdict(WRONG, f"began anew, and there was step {newest}: {log[-800:]}")
    return None


def _checkpoints(seen: Path) -> dict[int, dict[str, bytes]]:
    """Those that look whole: their steps and values.

    Raises:
        Torn: one of them cannot be read.
    """
    found = {}
    for path in (seen / "checkpoints").glob("ckpt-*.index"):
        try:
            found[int(path.stem.removeprefix("ckpt-"))] = tensors(path.with_suffix(""))
        except Exception as error:  # noqa: BLE001 whatever TensorFlow's reader says
            raise Torn(f"{path.name}: {error}") from None
    return found


def _model(path: Path) -> dict[str, bytes]:
    """The variables of an exported model.

    Raises:
        Torn: it cannot be read.
    """
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    try:
        SavedModel.FromString((path / "saved_model.pb").read_bytes())
        return tensors(path / "variables" / "variables")
    except Exception as error:  # noqa: BLE001 whatever TensorFlow's reader says
        raise Torn(f"export {path.name}: {error}") from None


def _plain(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in _OWN}


def _words(job: Job) -> str:
    return " | ".join(f"{name}: {replica.log[-700:]}" for name, replica in job.replicas.items())
