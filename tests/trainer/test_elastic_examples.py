"""Which examples the steps of an elastic run take while its workers come, go and are killed."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from trainer.cluster import Job, image_entrypoint, ran
from trainer.elastic_group import Group

EXAMPLES = 470
"""That are trained on in an epoch, which ends in the middle of a batch."""

EPOCHS = 30
PHASES = ((0, 1), (0, 1, 2), (1,), (0, 1, 2, 3))
"""Who trains, in the order of time."""

OF_MINE = """
    import json
    import os
    from pathlib import Path

    import keras
    import numpy as np
    import tensorflow as tf

    class Noted(keras.layers.Layer):
        '''The leader writes a line for each step of the training: its number, and the first column of the batch.'''

        def call(self, inputs, training=False):
            if training:
                gather = lambda strategy, values: strategy.gather(values, axis=0)
                everyone = tf.distribute.get_replica_context().merge_call(gather, (inputs[:, 0],))
                tf.py_function(note, [everyone], [])
            return inputs[:, 1:]

    done = []

    def note(numbers):
        if len(numbers) < 29 or max(numbers) >= EXAMPLES:  # the trainer tries the model, also on what is held out
            return
        if not done:  # no later checkpoint is there before the first step
            saved = Path(os.environ["DTJ_CHECKPOINT_DIR"]).glob("ckpt-*.index")
            done.append(max((int(path.stem.removeprefix("ckpt-")) for path in saved), default=0))
        done[0] += 1
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
            with open("noted", "a") as file:
                file.write(f"{done[0]} {' '.join(str(int(number)) for number in numbers)}\\n")

    def model():
        made = keras.Sequential([keras.Input((4,)), Noted(), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
        made.compile("sgd", "mean_squared_error")
        return made

    def data():
        inputs = np.random.RandomState(1).standard_normal((512, 4)).astype("float32")
        inputs[:, 0] = range(512)
        whole = tf.data.Dataset.from_tensor_slices((inputs, inputs[:, 1:].sum(axis=1)))
        return {"training": whole.take(EXAMPLES), "held_out": whole.skip(EXAMPLES)}
""".replace("EXAMPLES", str(EXAMPLES))
RUN = (
    "--model=mine:model",
    "--data=mine:data",
    f"--epochs={EPOCHS}",
    "--checkpoint-every-steps=20",
    "--checkpoint-keep=30",
    "--steps-per-call=1",
)


def noted(job: Job) -> list[list[int]]:
    """The numbers of the examples of each step, as it was done the last time."""
    lines = [[int(word) for word in line.split()] for line in (job.folder / "noted").read_text().splitlines()]
    steps = {step: numbers for step, *numbers in lines}
    assert sorted(steps) == list(range(1, len(steps) + 1))
    return [steps[step] for step in sorted(steps)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """The steps of a run of one process, with batches of 58."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return noted(ran(folder, arguments=[*RUN, "--batch-size=58"], files={"mine.py": OF_MINE}, exports=False))


def disturbed(folder: Path, *arguments: str) -> Job:
    """A run of two, three, one and four workers, of which one is killed each time; each joins where others held."""
    with Job(
        folder,
        strategy="MultiWorkerMirrored",
        roles={"worker": 4},
        arguments=[*RUN, *arguments],
        files={"mine.py": OF_MINE},
        program=image_entrypoint(),
        exports=False,
    ) as job:
        job.hold_at(20)
        workers = Group(job, PHASES[0])
        for number, members in enumerate(PHASES):
            if number:
                workers.change(members)
            step = 40 * number + 20
            job.hold_at(step)
            job.wait_for_checkpoint(step)
            said = workers.said()
            workers.kill(members[-1])
            job.hold_at(step + 20)
            workers.wait_for(r"resumed: step \d+", f"worker-{members[0]}", said)
            job.wait_for_checkpoint(step + 20)
        job.let_go()
        assert job.wait() == dict.fromkeys(job.replicas, 0)
    return job


def epochs(steps: list[list[int]]) -> Iterator[list[int]]:
    """The examples of each whole epoch."""
    stream = (number for numbers in steps for number in numbers)
    while len(epoch := list(islice(stream, EXAMPLES))) == EXAMPLES:
        yield epoch


def test_no_example_is_lost_and_none_is_trained_twice_while_workers_come_go_and_are_killed(
    folder: Path, undisturbed: list[list[int]]
) -> None:
    steps = noted(disturbed(folder, "--batch-size=58"))
    assert steps == undisturbed
    assert [sorted(epoch) for epoch in epochs(steps)] == [list(range(EXAMPLES))] * EPOCHS


def test_with_a_batch_for_each_worker_the_run_goes_on_at_the_same_example_and_says_that_the_curve_changes(
    folder: Path, undisturbed: list[list[int]]
) -> None:
    job = disturbed(folder, "--per-replica-batch-size=29")
    steps = noted(job)
    assert {len(numbers) for numbers in steps} == {29 * len(members) for members in PHASES}
    assert list(epochs(steps)) == list(epochs(undisturbed))
    for before, after, leader in ((58, 87, 0), (87, 29, 1), (29, 116, 0)):
        job[f"worker-{leader}"].wait_for(
            rf"the global batch was {before} and is {after} \(--per-replica-batch-size=29\), which changes the curve: "
            r"the run goes on after the \d+ examples that it has seen"
        )
