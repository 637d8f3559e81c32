"""`session.check`: a step of one's own has the gradients of one device, or a line says what to write instead."""

import json
import re
from pathlib import Path

import pytest

from trainer.cluster import ran

SCRIPT = Path(__file__).resolve().with_name("scripts") / "checked.py"
RIGHT = ("sum", "average", "average_of_replica", "mean_kept")
WRONG = {
    "mean": r"the gradient of \S+/kernel is (\S+) on 2 replicas together and (\S+) on one with the whole batch; divide",
    "twice": r"the gradient of \S+/kernel is (\S+) on 2 replicas together and (\S+) on one with .*; leave out the div",
    "twice_kept": "its gradients are divided by 2, which replicas keeps: ",
    "masked": r"the gradient of \S+ is \S+ on 2 replicas together and \S+ on one .*; let it sum what each example giv",
    "raises": "it could not be tried .AttributeError: .* has no attribute 'numpy'",
}
RATIOS = {"mean": 2.0, "twice": 0.5}


@pytest.mark.parametrize("strategy", ["Mirrored", "MultiWorkerMirrored"])
def test_a_right_step_holds_and_a_wrong_one_is_told_what_to_write_and_nothing_changes(
    folder: Path, strategy: str
) -> None:
    words = ["--", "all", *(["clip"] if strategy == "MultiWorkerMirrored" else [])]
    options = ["--logical-cpus=2", *words] if strategy == "Mirrored" else words
    done = ran(folder, strategy=strategy, script=SCRIPT.read_text(), arguments=options, imported=True)
    log = done["worker-0"].log
    found = dict(re.findall(r"^(\w+ of \w+): (.*)", log, re.M))
    held = {f"{name} of distributed" for name in RIGHT} | {"sum of tensors"}
    assert {what for what, line in found.items() if line == "holds"} == held
    assert len(re.findall(r"^checked step: 2 replicas compute the gradients of one .*of 4 variables", log, re.M)) == 5
    for name, line in WRONG.items():
        seen = re.search(line, found[f"{name} of distributed"])
        assert seen, found[f"{name} of distributed"]
        assert name not in RATIOS or float(seen[1]) / float(seen[2]) == pytest.approx(RATIOS[name], rel=1e-3)
    assert re.search(WRONG["mean"], found["mean of tensors"])
    assert all(re.search(r"^unchanged True 0\.0 0$", one.log, re.M) for one in done.replicas.values())
    assert "\ntrained 2 2\n" in log


def test_a_wrong_step_ends_the_job_unless_the_user_names_it(folder: Path) -> None:
    options = {"strategy": "Mirrored", "script": SCRIPT.read_text(), "imported": True}
    arguments = ["--logical-cpus=2", "--", "mean"]
    refused = ran(folder, code=2, arguments=arguments, **options)
    assert re.match(f"check of step: {WRONG['mean']}", refused["worker-0"].last_words)
    assert refused["worker-0"].last_words.endswith("with --unchecked=step")
    accepted = ran(folder / "again", arguments=arguments, environ={"DTJ_UNCHECKED": "step"}, **options)
    assert "accepted by --unchecked=step: check of step: the gradient of " in accepted["worker-0"].log
    assert json.loads(accepted["worker-0"].last_words)["progress"]["unchecked"] == ["step"]
