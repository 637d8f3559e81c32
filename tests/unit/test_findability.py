"""Each rule is in a file whose name says so: a newcomer who asks one of these questions finds the file by its name.

A question has the folder to look in, the word that a newcomer would search for, and words of the rule itself. The test
searches the *names* of the files for the word. One of the files that it finds must hold the rule.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.snippets import ROOT

pytestmark = pytest.mark.unit

CORE = "operator/dtj/core"
ENGINE = "operator/dtj/engine"
KUBE = "operator/dtj/kube"
CLI = "operator/dtj/cli"
TRAINER = "trainer-image"


@dataclass(frozen=True)
class Question:
    """What a newcomer asks; ``rule`` is a regular expression for the lines that answer it."""

    text: str
    folder: str
    word: str
    rule: str

    def files(self) -> list[Path]:
        """The files below the folder with the word in their name."""
        return [path for path in sorted((ROOT / self.folder).rglob("*.py")) if self.word in path.stem]


QUESTIONS = (
    Question("In which order do the policies decide?", CORE, "planner", r"^def plan\("),
    Question("A worker is lost: which replicas restart?", CORE, "restart_scope", r"^def requires_full_restart\("),
    Question("How does a new attempt begin?", CORE, "restart", r"^def begin_attempt\("),
    Question("How long does a restart wait?", CORE, "backoff", r"^def seconds_until_due\("),
    Question("Which budget pays for a restart?", CORE, "budgets", r"run_policy\.backoff_limit"),
    Question("What do exit codes 42 and 143 mean?", CORE, "pod_failure", r"\b42\b"),
    Question("When is a finished job deleted?", CORE, "ttl", r"ttl_seconds_after_finished"),
    Question("Which pods are deleted at the end?", CORE, "cleanup", r"clean_pod_policy"),
    Question("When has a job run for too long?", CORE, "deadlines", r"active_deadline_seconds"),
    Question("When does a job succeed?", CORE, "success", r"^def decide\("),
    Question("What does a suspended job do?", CORE, "suspend", r"^def suspend\("),
    Question("What happens after kubectl scale?", CORE, "elastic", r"^def resize\("),
    Question("What is evidence of a stall?", CORE, "stall", r"^def evidence\("),
    Question("Which condition says that all pods are ready?", CORE, "conditions", r"^def pods_ready\("),
    Question("Whose object has our name?", CORE, "name_collision", r"^def report_collision\("),
    Question("What does Kueue admit?", CORE, "kueue", r"^def queue\("),
    Question("When is a gang released?", CORE, "gang", r"^def release_incomplete\("),
    Question("When does TensorBoard run?", CORE, "tensorboard", r"^def next_to\("),
    Question("What is in TF_CONFIG?", CORE, "tf_config", r"def variables\("),
    Question("Who may connect to the pods of a job?", CORE, "network_policy", r"^def network_policy\("),
    Question("Which container is the trainer?", CORE, "pod_state", r"^def main_container\("),
    Question("How are many pods created at once?", ENGINE, "slow_start", r"^async def slow_start\("),
    Question("When is an echo of our own write awaited?", ENGINE, "expectations", r"^class Expectations\b"),
    Question("When is a failed pass tried again?", ENGINE, "queue", r"def add_failed\("),
    Question("What happens after 410 Gone?", KUBE, "informer", r"(except|isinstance\().*\bGone\b"),
    Question("What does 429 mean?", KUBE, "status_errors", r"TOO_MANY_REQUESTS"),
    Question("When does an operator stop to lead?", KUBE, "lease", r"raise LeaseLost\("),
    Question("How are equal events counted?", KUBE, "events", r"_count_up\("),
    Question("Is a drain charged to the job's budgets?", CORE, "budgets", r"^def charged\("),
    Question("What is a drain, and what an error?", CORE, "pod_failure", r"^def _class_of\("),
    Question("How often may pods run out of memory?", CORE, "budgets", r"^def out_of_memory\("),
    Question("How often is the progress written into the status?", CORE, "status_update", r"UPDATE_INTERVAL: Final"),
    Question("Which job is one of the same name and another UID?", ENGINE, "job_store", r"\.uid != "),
    Question("Why does a job not run?", "operator/dtj/client", "diagnosis", r"^def reasons\("),
    Question("What is a pod's state in one word?", CORE, "pod_state", r"^def state_text\("),
    Question("Which rights does the operator need?", KUBE, "rbac", r"^NAMESPACE_RULES\b"),
    Question("What is left out of a report?", CLI, "redaction", r"^def without_secrets\("),
    Question("How does a SIGTERM reach the training?", TRAINER, "signals", r"^class Termination\b"),
    Question("When do all tasks save together?", TRAINER, "checkpointing", r"def vote\("),
    Question(
        "A parameter server is lost: how does its job go on?", TRAINER, "parameter_server", r"PeerLost: .* is gone"
    ),
    Question("Which checkpoint directory does a script get?", TRAINER, "script", r"^def _variables\("),
    Question("What ends a process that hangs?", TRAINER, "watchdog", r"class LastResort\b"),
    Question("How is data divided between workers?", TRAINER, "sharding", r"^def distributed\("),
    Question("Where is the outer loop of the training?", TRAINER, "controller", r"^class Controller\b"),
    Question("When is a user's action called?", TRAINER, "actions", r"^def load_actions\("),
    Question("Which optimizers are there?", TRAINER, "optimizers", r"^def make\("),
    Question("What does a replica's loss add to the global batch's?", TRAINER, "synchronous_step", r"def loss\("),
    Question("How does a resumed run draw the same dropout?", TRAINER, "rng_state", r"^class RngState\b"),
    Question("Is the learning rate scaled to the batch?", TRAINER, "optimizers", r"base_batch"),
    Question("Who fills an epoch's last batch?", TRAINER, "pipeline", r"Batches run on over the end of an epoch"),
    Question(
        "Is BatchNormalization synchronized?", TRAINER, "batch_normalization", r"^def synchronize_batch_normalization\("
    ),
    Question("Which exit codes are there?", TRAINER, "exit_codes", r"\b75\b"),
    Question("What is a checkpoint written from?", TRAINER, "state", r"def snapshot\("),
    Question("Where is a model cut into stages?", TRAINER, "graph_cut", r"^def cut\("),
    Question("How long does a task wait in a collective?", TRAINER, "collective_timing", r"^def of\("),
    Question("Which program restarts in its pod?", TRAINER, "restart_policy", r"def after\("),
    Question("How do tasks find that all of them are there?", TRAINER, "rendezvous", r"^def rendezvous\("),
    Question("Which of the tasks is this one?", TRAINER, "topology", r"^def topology_of\("),
    Question("For which peers does a task wait before it starts?", TRAINER, "start_gate", r"^def meet_peers\("),
    Question("How does a JSON line of the trainer's log look?", TRAINER, "logs", r"^class JsonFormatter\("),
    Question("Which loggers does the trainer configure?", TRAINER, "logs", r"^_LOGGERS = "),
    Question("How does a log line of the operator look?", ENGINE, "logs", r"^class JsonFormatter\("),
)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.text)
def test_the_name_of_the_file_leads_to_the_rule(question: Question) -> None:
    files = question.files()
    assert files, f"no file below {question.folder} has {question.word!r} in its name"
    holding = [path for path in files if re.search(question.rule, path.read_text(), re.MULTILINE)]
    assert holding, f"{question.rule!r} is in none of {[str(path.relative_to(ROOT)) for path in files]}"


def test_a_name_leads_to_few_files() -> None:
    """A word that is in every name would find everything."""
    assert [question.text for question in QUESTIONS if len(question.files()) > 5] == []


POLICIES = sorted(path.stem for path in (ROOT / CORE / "policies").glob("[a-z]*.py"))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_tests_of_a_policy_have_its_name(policy: str) -> None:
    assert (ROOT / "tests/unit/core" / f"test_{policy}.py").exists()


def test_the_order_of_the_policies_is_read_at_once() -> None:
    """Whoever asks why one policy decides before another reads the planner from its first line to its last."""
    assert len((ROOT / CORE / "planner.py").read_text().splitlines()) <= 150
