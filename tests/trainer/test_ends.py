"""What was once found by ends composed at random, and an end of each kind, has no fault."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.adversaries import ends, ways
from trainer.adversaries.ending_task import AFTER, AWAY, BEFORE, BROKEN, FULL, POWER, TORN
from trainer.adversaries.ends import Course, End, Fault
from trainer.stores import Store, store_with_bucket

FOLDER, BUCKET = Course(), Course(bucket=True)
_SAVED = Fault("tensors", 3, AFTER)
ROWS = {
    "half a checkpoint": End(FOLDER, (Fault("tensors", 3, TORN),)),
    "a checkpoint without its index": End(FOLDER, (Fault("replace checkpoints/ckptN.index", 2),)),
    "half a model": End(FOLDER, (Fault("model", 0, TORN),)),
    "a model that has its name": End(FOLDER, (Fault("rename export/N", 0, AFTER),)),
    "a copy without its marker": End(BUCKET, (Fault("object write checkpoints/ckptN.complete", 2),)),
    "a copy that is no longer marked": End(BUCKET, (Fault("object delete checkpoints/ckptN.complete", 6, AFTER),)),
    "a model that is not on the disk": End(FOLDER, (Fault("rename export/N", 0, AFTER, POWER),)),
    "a result that is not on the disk": End(FOLDER, (Fault("replace logs/result.json", 0, AFTER, POWER),)),
    "a checkpoint that is not on the disk": End(FOLDER, (Fault("replace checkpoints/ckptN.index", 2, AFTER, POWER),)),
    "a model without its marker": End(BUCKET, (Fault("object write export/N.complete", 0),)),
    "a model whose marker was not confirmed": End(BUCKET, (Fault("object write export/N.complete", 0, AFTER, AWAY),)),
    "no room for the result": End(FOLDER, (Fault("replace logs/result.json", 0, BEFORE, BROKEN),)),
    "no room for the model": End(FOLDER, (Fault("model", 0, TORN, FULL),)),
    "no room for the local copy of a note": End(BUCKET, (_SAVED, Fault("write N/validation.json", 0, TORN, FULL))),
}


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with store_with_bucket("s3", "ends") as store:
        yield store


@pytest.fixture(scope="module")
def whole(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Course, ends.Whole]]:
    with ways.forking(ends.PROGRAM):
        yield {course: ends.whole(course, tmp_path_factory.mktemp("whole"), store) for course in (FOLDER, BUCKET)}


@pytest.mark.parametrize("name", ROWS)
def test_what_ends_there_goes_on_to_the_same_bits(
    name: str, whole: dict[Course, ends.Whole], store: Store, tmp_path: Path
) -> None:
    row = ROWS[name]
    verdict = ends.judge(row, whole[row.course], tmp_path, store)
    assert not verdict.fault, verdict
    assert verdict.why == f"{len(row.faults)} of {len(row.faults)} faults"
