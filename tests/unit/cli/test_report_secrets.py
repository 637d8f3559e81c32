"""``dtj report``: what is left out as a secret, and that a text of any kind is read in one go."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dtj.api.json import JsonObject, dig
from dtj.api.names import Annotation
from dtj.cli.report.evidence import Evidence, Log, Scalar
from dtj.cli.report.page import render_page
from dtj.cli.report.redaction import REDACTED, WORDS, is_telling, without_secrets, without_telling
from dtj_trainer.config.options import options_of
from dtj_trainer.config.parsing import OWNERS

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJib2IifQ.s1GnaturE-of_jwt"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqPEMPEMPEM\n-----END PRIVATE KEY-----"


def evidence_of(container: JsonObject, log: str = "nothing", **metadata: JsonObject) -> Evidence:
    """A job and a pod with this container, and a log."""
    volumes, status = container.get("volumes", []), container.get("status", {})
    own = {key: value for key, value in container.items() if key not in ("volumes", "status")}
    body: JsonObject = {"containers": [{"name": "trainer", **own}], "volumes": volumes}
    named: JsonObject = {"name": "j", "namespace": "n", "uid": "u", **metadata}
    job: JsonObject = {"metadata": named, "spec": {"template": {"spec": body}}, "status": status}
    pod: JsonObject = {"kind": "Pod", "metadata": {**named, "name": "j-worker-0"}, "spec": body}
    logs = (Log("worker-0", f"{log}\n"),)
    return Evidence(source="s", taken_at=datetime.now(UTC), job=job, objects={"pods": (pod,)}, logs=logs)


def leaks(secret: str, known: Evidence) -> bool:
    """Whether the page of a report holds the secret."""
    assert secret in render_page(known)
    return secret in render_page(without_secrets(known))


def header(name: str) -> JsonObject:
    return {"httpGet": {"httpHeaders": [{"name": name, "value": "s3cret-value"}]}}


@pytest.mark.parametrize(
    "container",
    [
        {"env": [{"name": "DEPTH", "value": "s3cret-value"}]},
        {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s3cret-value", "key": "k"}}}]},
        {"env": [{"name": ["TF_CONFIG"], "value": "s3cret-value"}]},
        {"args": ["s3cret-value", "--data-dir=s3cret-value", "--epochs=s3cret-value"]},
        {"args": [["s3cret-value"], {"a": "s3cret-value"}]},
        {"command": ["sh", "-c", "python t.py s3cret-value"]},
        {"command": "s3cret-value"},
        {"lifecycle": {"preStop": {"exec": {"command": ["curl", "-H", "X: s3cret-value"]}}}},
        {"livenessProbe": header("Authorization"), "readinessProbe": header("Accept")},
        {"volumes": [{"name": "v", "csi": {"driver": "d", "volumeAttributes": {"share": "s3cret-value"}}}]},
        {"status": {"rootCause": {"message": "401 for token=s3cret-value"}}},
    ],
    ids=str,
)
def test_values_are_not_in_a_report(container: JsonObject) -> None:
    assert not leaks("s3cret-value", evidence_of(container))


def test_what_a_reader_needs_and_what_is_no_secret_stays() -> None:
    env: JsonObject = {"name": "TF_CONFIG", "value": "{}"}
    args: list[JsonObject | str] = ["plain", "--epochs=3", "--task", "digits", "--layers", "4", "--pass-key", "4", "-x"]
    resources: JsonObject = {"limits": {"cpu": "2"}}
    annotations: JsonObject = {"team": "plain", Annotation.MAIN_CONTAINER: "trainer"}
    known = evidence_of(
        {"image": "x:1", "env": [env], "args": args, "resources": resources},  # type: ignore[dict-item]
        annotations=annotations,
        managedFields={"manager": "plain"},
    )
    (pod,) = without_secrets(known).pods
    assert dig(pod, "spec", "containers", 0) == {
        "name": "trainer",
        "image": "x:1",
        "env": [env],
        "args": [REDACTED, "--epochs=3", "--task", "digits", "--layers", "4", "--pass-key", REDACTED, REDACTED],
        "resources": resources,
    }
    assert dig(pod, "metadata", "annotations") == {"team": REDACTED, Annotation.MAIN_CONTAINER: "trainer"}
    assert dig(pod, "metadata", "managedFields") is None


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (
            ["--model=mine.models:build", "--data=data/train.csv"],
            ["--model=mine.models:build", "--data=data/train.csv"],
        ),
        (["--model", "google/vit-base", "--data", "s3://pictures/2024"], None),
        (["--data=https://u:p@host/x"], [f"--data={REDACTED}"]),
        (["--model=hf_0123456789abcdef"], [f"--model={REDACTED}"]),
        (["--model=two words"], [f"--model={REDACTED}"]),
        (["--data=known-elsewhere"], [f"--data={REDACTED}"]),
    ],
)
def test_the_names_of_a_model_and_of_data_stay_unless_they_look_like_a_secret(
    given: list[JsonObject | str], shown: list[str] | None
) -> None:
    env: list[JsonObject] = [{"name": "API_TOKEN", "value": "known-elsewhere"}]
    (pod,) = without_secrets(evidence_of({"args": given, "env": env})).pods  # type: ignore[dict-item]
    assert dig(pod, "spec", "containers", 0, "args") == (given if shown is None else shown)


@pytest.mark.parametrize(
    ("log", "secret"),
    [
        ("using wandb-4f1e2d3c", "wandb-4f1e2d3c"),
        ("GET /?q=a%2Fb%20cdef", "a%2Fb%20cdef"),
        ("it is s3cr3", "s3cr3"),
        ("opt-value-1 opt-value-2", "opt-"),
        ("mount csi-value-1 ann-value-1", "-value-"),
    ],
)
def test_values_of_telling_names_are_left_out_of_all_other_text(log: str, secret: str) -> None:
    names = {"WANDB_API_KEY": "wandb-4f1e2d3c", "MYSQL_PWD": "a/b cdef", "PASSWORD": "s3cr3", "KEY": "on"}
    container: JsonObject = {
        "env": [{"name": name, "value": value} for name, value in names.items()],
        "args": ["--token", "opt-value-1", "--db-pass=opt-value-2"],
        "volumes": [{"csi": {"volumeAttributes": {"accessKey": "csi-value-1"}}}],
    }
    known = evidence_of(container, log, annotations={"team/api-token": "ann-value-1"})
    assert not leaks(secret, known)
    (other,) = without_secrets(evidence_of(container, "goes on with xs3cr3x")).logs
    assert other.text == "goes on with xs3cr3x\n", "a short value is a word of its own, or not looked for"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a token=x b\r\nc", f"a token={REDACTED}\r\nc"),
        ('{"password": "a\\"b", "x": 1}', f'{{"password": {REDACTED}'),
        ('{"y": "{\\"token\\": \\"x\\"}"}', f'{{"y": "{{\\"token\\": {REDACTED}'),
        ("python t.py --api-key x --epochs 3", f"python t.py --api-key {REDACTED}"),
        ("export HF_TOKEN=x; python t.py", f"export HF_TOKEN={REDACTED}"),
        ("Cookie: a=b; c=d\nnext", f"Cookie: {REDACTED}\nnext"),
        ("curl -H 'Authorization: Bearer x'", f"curl -H 'Authorization: {REDACTED}"),
        ("AccountName=a;AccountKey=Xyzzy0123==", f"AccountName=a;AccountKey={REDACTED}"),
        ("https://a.blob.example/c?sv=2024&sig=Sig%2Babc", f"https://a.blob.example/c?sv=2024&sig={REDACTED}"),
        ("to https://hooks.slack.com/services/T00/B00/XX now", f"to https://{REDACTED} now"),
        (f"a\n{PEM}\nb", f"a\n{REDACTED}\nb"),
        (f"T1 {PEM}".replace("\n", "\nT2 "), f"T1 {REDACTED}"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc", REDACTED),
        ("redis://:p@w@a:1,redis://b:pw@c:2", f"redis://{REDACTED}@a:1,redis://{REDACTED}@c:2"),
        ("ghp_0123456789abcdefABCDEF AKIAIOSFODNN7EXAMPLE", f"{REDACTED} {REDACTED}"),
        (f"{JWT} sk-live-00aa hf_0123456789abcdef", f"{REDACTED} {REDACTED} {REDACTED}"),
    ],
)
def test_what_looks_like_a_secret_is_left_out_of_text_and_the_rest_of_a_line_with_a_name(text: str, left: str) -> None:
    assert without_telling(text) == left


@pytest.mark.parametrize(
    "line",
    [
        "KeyError: 'loss'",
        "num_tokens=1024 tokens: 512",
        "author: bob, monkey: 3, design=7",
        "step 20/225 (9%)  loss 1.3626  accuracy 0.6",
        "mkdir -p /checkpoints",
        "2026-01-01T00:00:00Z worker-0: key 7 is missing",
        "see https://example.com/a/b@v1 and http://10.0.0.1:8080/x",
        "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "the token is invalid",
        "Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    ],
)
def test_what_helps_to_find_a_fault_stays(line: str) -> None:
    assert without_telling(line) == line


def test_the_words_that_are_shown_are_all_that_their_options_take() -> None:
    known = {option.flag: option for owner in OWNERS for option in options_of(owner).values()}
    assert known.keys() >= WORDS
    for flag in sorted(WORDS):
        with pytest.raises(ValueError, match=r".+"):
            known[flag].parse("s3cret")


def test_an_option_with_a_value_that_the_trainer_would_refuse_is_left_out() -> None:
    args: JsonObject = {"args": ["--epochs=s3cret", "--task", "s3cret", "--seed", "--learning-rate=-s3cret"]}
    assert not leaks("s3cret", evidence_of(args))


def test_the_name_of_a_metric_is_text_too() -> None:
    at = datetime.now(UTC)
    known = Evidence(source="s", taken_at=at, job={}, scalars=(Scalar("api-key=x", 1, 2.0, at),))
    assert without_secrets(known).scalars[0].name == f"api-key={REDACTED}"


@pytest.mark.parametrize(
    "piece",
    [
        *("a", "eyJ", "-eyJaaaaaa", "eyJaaaaaa.", "a://", "a://b:c", "token", "token=", "key.", "x=", '"', "\\", '\\"'),
        *("--p ", "-p a ", "-----BEGIN PRIVATE KEY-----", "sk-", "Key", 'token="', "'", "@", "a@", "://@", "KEY: "),
        *("= ", ": \t", "key x= "),
    ],
)
def test_a_line_of_any_length_is_read_in_one_go(piece: str) -> None:
    """With time that grows by the square of its length, one line would take hours."""
    without_telling(piece * (2**18 // len(piece)))


def test_names_are_recognized_by_their_words_and_everyday_words_are_no_evidence() -> None:
    telling = ["HF_TOKEN", "api-key", "AccountKey", "X-Amz-Signature", "dbPassword", "--auth", "PGPASSWD", "db_pass_2"]
    assert [name for name in telling if not is_telling(name)] == []
    everyday = ["tokens", "KeyError", "key", "monkey", "author", "passes", "keyboard", "", "pass"]
    assert [name for name in everyday if is_telling(name)] == []


def test_a_flag_of_a_telling_name_is_no_secret_in_other_places() -> None:
    flag: JsonObject = {"name": "REQUIRE_TOKEN", "value": "True"}
    failed: JsonObject = {"conditions": [{"type": "Failed", "status": "True", "message": "it broke"}]}
    known = without_secrets(evidence_of({"env": [flag], "status": failed}))
    assert dig(known.job, "status", "conditions", 0, "status") == "True"
    assert dig(known.job, "spec", "template", "spec", "containers", 0, "env", 0, "value") == REDACTED
