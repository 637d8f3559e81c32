"""Held-out examples that are not the same each time they are read end the job before a wrong number is shown."""

from pathlib import Path

import numpy as np
import pytest

from trainer.changing_data import OPTIONS, options_of
from trainer.cluster import NO_EXPORT, PATH, Job, ran

VALIDATES = ("--checkpoint-every-steps=5", "--validate-every=20")
"""A checkpoint before the first validation."""
AT_THE_START = "--data=mine:data: the held_out examples change from one reading to the next"
ONCE_EACH_CALL = "examples.take(400).concatenate(examples.skip(400).shuffle(COUNT, reshuffle_each_iteration=False))"
SPLIT = "{{'training': {}.take(800), 'held_out': {}.skip(800)}}"
COLLECTIVE = tuple(OPTIONS)[:3]


@pytest.mark.parametrize(
    "data",
    [
        "later",
        ONCE_EACH_CALL,
        "later.map(lambda x, y: (x, tf.ones([1])))",
        SPLIT.format("examples", "later"),
        # The classes in turn, each shuffled: labels stay in their places.
        "tf.data.Dataset.choose_from_datasets([examples.filter(lambda x, y: (y[0] < 0.5) == low).map(lambda x, y: "
        "(x, tf.ones([1]) * float(low))).shuffle(COUNT) for low in (False, True)], tf.data.Dataset.range(2).repeat())",
        SPLIT.format("examples", "examples.map(lambda x, y: (x + tf.random.normal([2]), y))"),
    ],
)
def test_held_out_examples_that_change_are_refused_before_training(folder: Path, data: str) -> None:
    job = ran(folder, code=2, **options_of("OneDevice", data))
    assert job["worker-0"].last_words.startswith(AT_THE_START)
    assert "reshuffle_each_iteration=False" in job["worker-0"].last_words


@pytest.mark.parametrize("strategy", list(OPTIONS)[1:])
def test_each_strategy_refuses_an_order_that_changes_late(folder: Path, strategy: str) -> None:
    job = ran(folder, code=2, **options_of(strategy, "later"))
    assert all(one.last_words.startswith(AT_THE_START) for one in job.ending)


def test_workers_whose_held_out_examples_differ_after_the_first_ones_all_end_with_2(folder: Path) -> None:
    job = ran(folder, code=2, **options_of("MultiWorkerMirrored", "reversed_late(INDEX)"))
    for replica in job.replicas.values():
        assert replica.last_words.startswith("data: worker 0 and worker 1 do not read the same examples in the same ")


@pytest.mark.parametrize("strategy", COLLECTIVE)
def test_a_change_during_the_training_is_found_before_val_is_shown(folder: Path, strategy: str) -> None:
    several = strategy == "MultiWorkerMirrored"
    data, where = ("once_saved(here=INDEX == 1)", " on worker 1") if several else ("once_saved()", "")
    job = ran(folder, code=2, **options_of(strategy, data, *VALIDATES))
    for replica in job.replicas.values():
        assert replica.last_words.startswith(f"--data=mine:data: the held-out examples changed{where} since they were")
        assert "val_" not in replica.log
        assert "\nvalidation: " not in replica.log


@pytest.mark.parametrize("strategy", ["OneDevice", "MultiWorkerMirrored", "Pipeline"])
def test_a_change_during_the_training_is_found_by_the_evaluation_at_the_end(folder: Path, strategy: str) -> None:
    with Job(folder, **options_of(strategy, "once_saved()", "--checkpoint-every-steps=5")) as job:
        job.start()
        leader, *others = job.replicas.values()
        assert leader.wait() == 2
        assert [one.wait() for one in others if strategy != "Pipeline"] == [0] * (strategy == "MultiWorkerMirrored")
    assert "the held-out examples changed since" in leader.last_words
    assert not (folder / "logs" / "result.json").exists()


AUGMENTED = SPLIT.format("examples.map(lambda x, y: (x + tf.random.normal([2]), y))", "examples")


@pytest.mark.parametrize(
    "data", ["examples", "examples.shuffle(COUNT, seed=1, reshuffle_each_iteration=False)", AUGMENTED]
)
@pytest.mark.parametrize("strategy", COLLECTIVE)
def test_a_fixed_order_and_augmentation_pass_each_validation(folder: Path, data: str, strategy: str) -> None:
    job = ran(folder, **options_of(strategy, data, *VALIDATES))
    assert job["worker-0"].log.count("\nvalidation: ") == 2


@pytest.mark.parametrize("strategy", OPTIONS)
def test_a_resumed_run_with_other_held_out_examples_is_refused(folder: Path, strategy: str) -> None:
    ran(folder, **options_of(strategy, "examples"))
    job = ran(folder, code=2, **options_of(strategy, "reversed_late(True)", "--epochs=2"))
    for one in job.ending:
        assert one.last_words.startswith("--data=mine:data: the held-out examples")
        assert "are not those of checkpoint" in one.last_words


def test_files_that_changed_are_found_at_the_resume_by_their_option(folder: Path) -> None:
    folder.mkdir(parents=True)

    def table(name: str, seed: int) -> None:
        rows = np.random.default_rng(seed).normal(size=(300, 3)).round(3)
        lines = [",".join(map(str, row)) for row in rows]
        (folder / name).write_text("\n".join(["a,b,target", *lines]) + "\n")

    table("train.csv", 0)
    table("test.csv", 1)
    arguments = [
        "--task=tabular-regression", "--data-dir=train.csv", "--held-out=test.csv", "--batch-size=30",
        "--validate-every=5", "--epochs=1", "--label-column=target",
    ]  # fmt: skip
    with Job(folder, arguments=arguments, exports=False) as job:
        assert job.start().wait() == {"worker-0": 0}
        table("test.csv", 2)
        assert job.start(arguments=["--epochs=2"]).wait() == {"worker-0": 2}
    assert job["worker-0"].last_words.startswith("--held-out=test.csv: the held-out examples are not those of ")


def _labelled(path: Path, seed: int, *, rows: int = 200) -> None:
    random = np.random.default_rng(seed)
    lines = [f"{'pos' if row % 2 else 'neg'}\t{' '.join(f'w{word}' for word in random.integers(0, 9000, 12))}"
             for row in range(rows)]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")


def _table(path: Path, seed: int) -> list[str]:
    rows = np.random.default_rng(seed).normal(size=(300, 2)).round(3)
    lines = [f"{row[0]},{row[1]},{'pos' if number % 2 else 'neg'}" for number, row in enumerate(rows)]
    path.write_text("\n".join(["a,b,label", *lines]) + "\n")
    return lines


TABLE = ("--task=tabular-classification", "--data-dir=all.csv", "--batch-size=30")


def test_files_are_read_for_the_first_checkpoint_also_without_validations(folder: Path) -> None:
    folder.mkdir(parents=True)
    _table(folder / "all.csv", 0)
    with Job(folder, arguments=TABLE, exports=False) as job:
        assert job.start(arguments=["--held-out=0.1", "--epochs=1"]).wait() == {"worker-0": 0}
        assert job.start(arguments=["--held-out=0.3", "--epochs=2"]).wait() == {"worker-0": 2}
    assert job["worker-0"].last_words.startswith("--data-dir=all.csv: the held-out examples are not those of ")


SAYS_WHEN_IT_READS = """
import overfits
from dtj_trainer.data.held_out_examples import HeldOut

reading = HeldOut.reading

def spoken(self, **how):
    print("reads what is held out", flush=True)
    return reading(self, **how)

HeldOut.reading = spoken

def build():
    return overfits.build()
"""


def test_at_the_first_start_only_the_worker_that_saves_reads_what_is_held_out(folder: Path) -> None:
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    rows = [",".join(map(str, [*row.round(3), number % 2])) for number, row in enumerate(random.normal(size=(300, 8)))]
    (folder / "all.csv").write_text("\n".join(["a,b,c,d,e,f,g,h,label", *rows]) + "\n")
    arguments = [
        "--model=spoken:build", "--data-dir=all.csv", "--batch-size=30", "--epochs=1", "--held-out=0.2",
        "--loss=sparse_categorical_crossentropy",
    ]  # fmt: skip
    job = ran(
        folder, strategy="MultiWorkerMirrored", roles={"worker": 2}, arguments=arguments,
        files={"spoken.py": SAYS_WHEN_IT_READS},
        environ={"PYTHONPATH": f"{PATH}:{Path(__file__).parent / 'scripts'}:{folder}", **NO_EXPORT},
    )  # fmt: skip
    # For its checkpoints, and for the evaluation at the end.
    assert [job[f"worker-{index}"].log.count("reads what is held out") for index in (0, 1)] == [2, 0]


def test_training_files_with_other_frequent_words_are_refused_at_the_resume(folder: Path) -> None:
    (folder / "train").mkdir(parents=True)
    _labelled(folder / "train" / "a.txt", 0, rows=2000)
    _labelled(folder / "test.txt", 1)
    arguments = [
        "--task=text-classification", "--data-dir=train", "--held-out=test.txt", "--batch-size=200", "--epochs=1",
    ]  # fmt: skip
    with Job(folder, arguments=arguments, exports=False) as job:
        assert job.start().wait() == {"worker-0": 0}
        _labelled(folder / "train" / "b.txt", 2, rows=60)
        assert job.start(arguments=["--epochs=2"]).wait() == {"worker-0": 2}
    assert job["worker-0"].last_words.startswith("--held-out=test.txt: the held-out examples are not those of ")


def test_a_line_that_moved_within_its_class_is_another_held_out_part(folder: Path) -> None:
    folder.mkdir(parents=True)
    lines = _table(folder / "all.csv", 0)
    with Job(folder, arguments=[*TABLE, "--held-out=0.1"], exports=False) as job:
        assert job.start(arguments=["--epochs=1"]).wait() == {"worker-0": 0}
        (folder / "all.csv").write_text("\n".join(["a,b,label", *lines[2:], *lines[:2]]) + "\n")
        assert job.start(arguments=["--epochs=2"]).wait() == {"worker-0": 2}
    assert "are not those of checkpoint" in job["worker-0"].last_words


def test_an_evaluator_refuses_held_out_examples_that_are_not_those_of_the_training(folder: Path) -> None:
    data = "reversed_late(os.environ['DTJ_ROLE'] == 'evaluator')"
    with Job(folder, roles={"worker": 1, "evaluator": 1}, **options_of("OneDevice", data)) as job:
        assert job.start().wait() == {"worker-0": 0, "evaluator-0": 2}
    assert "are not those of checkpoint" in job["evaluator-0"].last_words


def test_the_digest_does_not_depend_on_the_batch_size_and_knows_places() -> None:
    tf = pytest.importorskip("tensorflow")
    from dtj_trainer.data.held_out_examples import Digest, Reading

    ragged = tf.ragged.constant([[[1, 2], [3]], [], [[4]], [[], [5, 6, 7]], [[8]]])
    words = tf.constant(["a", "bc", "", "d", "e"])
    labels = tf.constant([[0.0], [1.0], [2.0], [3.0], [4.0]])

    def digest(order: list[int], batch: int) -> Digest:
        values = ({"ragged": tf.gather(ragged, order), "words": tf.gather(words, order)}, tf.gather(labels, order))
        stream = tf.data.Dataset.from_tensor_slices(values).ragged_batch(batch)
        return Reading(stream, batch=batch).finish()

    first = digest([0, 1, 2, 3, 4], 5)
    assert first == digest([0, 1, 2, 3, 4], 2) == digest([0, 1, 2, 3, 4], 1)
    other = digest([1, 0, 2, 3, 4], 2)
    assert first.members == other.members
    assert not first.is_in_order_of(other, inputs_stay=False)
    assert not first.is_in_order_of(digest([0, 1, 2, 3], 2), inputs_stay=False)
