"""``dtj report``: what is left out as a secret, and that a text of any kind is read in one go."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtj.api.json import JsonObject
from dtj.cli.report.bundle import files
from dtj.cli.report.evidence import Evidence, Log
from dtj.cli.report.redaction import REDACTED, is_telling, without_secrets, without_telling

pytestmark = pytest.mark.unit

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJib2IifQ.s1GnaturE-of_jwt"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqPEMPEMPEM\n-----END PRIVATE KEY-----"
AZURE = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=AccountXyzzy0123=="
OTHER: JsonObject = {"name": "WANDB_API_KEY", "value": "wandb-4f1e2d3c"}


def env(name: str, value: str) -> JsonObject:
    return {"env": [{"name": name, "value": value}]}


SHAPES: dict[str, tuple[str, JsonObject]] = {
    "an API key": ("wandb-4f1e2d3c", env("WANDB_API_KEY", "wandb-4f1e2d3c")),
    "an access key": ("wJalrXUtnFEMIK7MDENG", env("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMIK7MDENG")),
    "a variable _PWD": ("hunter2-mysqlpwd", env("MYSQL_PWD", "hunter2-mysqlpwd")),
    "a variable _PASS": ("hunter2-dbpass", env("DB_PASS", "hunter2-dbpass")),
    "a variable _AUTH": ("redisauth-99", env("REDIS_AUTH", "redisauth-99")),
    "a connection string": ("AccountXyzzy0123==", env("AZURE_STORAGE_CONNECTION_STRING", AZURE)),
    "a URL with a password": ("pw-in-url-1", env("DATABASE_URL", "postgres://bob:pw-in-url-1@db/x")),
    "a URL with a slash in its password": ("pw/in-url-2", env("DATABASE", "postgres://bob:pw/in-url-2@db/x")),
    "a signed URL": ("SigSigSig%2Babc", env("DATA", "https://a.blob.example/c?sv=2024&sig=SigSigSig%2Babc")),
    "a webhook": ("T00/B00/XXXXsecret", env("SLACK", "https://hooks.slack.com/services/T00/B00/XXXXsecret")),
    "a JWT by its value": (JWT, env("SESSION", JWT)),
    "a private key by its value": ("MIIEvQIBADANBgkqPEMPEMPEM", env("TLS", PEM)),
    "--password=": ("arg-eq-pw-1", {"args": ["--password=arg-eq-pw-1"]}),
    "--token and its value": ("arg-sp-tok-1", {"args": ["--token", "arg-sp-tok-1"]}),
    "--db-pass=": ("arg-dbpass-1", {"args": ["--db-pass=arg-dbpass-1"]}),
    "an option in sh -c": ("shc-tok-123456", {"args": ["sh", "-c", "python t.py --token=shc-tok-123456 --steps 5"]}),
    "an option with a blank in sh -c": ("shc-tok-2", {"args": ["sh", "-c", "python t.py --token shc-tok-2 --steps 5"]}),
    "export in sh -c": ("export-tok-1234", {"args": ["sh", "-c", "export HF_TOKEN=export-tok-1234; python t.py"]}),
    "a variable before a command": ("envword-1234", {"args": ["env", "API_TOKEN=envword-1234", "python", "t.py"]}),
    "a header": ("hdr-bearer-1234", {"args": ["curl", "-H", "Authorization: Bearer hdr-bearer-1234"]}),
    "-u user:password": ("curl-u-pw-1", {"args": ["curl", "-u", "bob:curl-u-pw-1"]}),
    "-p password": ("dash-p-pw-1", {"args": ["mysql", "-p", "dash-p-pw-1"]}),
    "-p password in sh -c": ("dash-p-pw-2", {"args": ["sh", "-c", "mysql -u bob -p dash-p-pw-2"]}),
    "what kubectl applied": (
        "lastapplied-1",
        {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": '{"x":"lastapplied-1"}'}},
    ),
    "an annotation": ("ann-token-1", {"annotations": {"team/api-token": "ann-token-1"}}),
    "JSON in an annotation": ("ann-json-1", {"annotations": {"vault.io/template": '{"token":"ann-json-1"}'}}),
    "JSON in JSON": ("ann-json-2", {"annotations": {"x": '{"y": "{\\"token\\": \\"ann-json-2\\"}"}'}}),
    "a known secret in a log": ("wandb-4f1e2d3c", {"env": [OTHER], "log": "using wandb-4f1e2d3c"}),
    "a known secret in base64": ("d2FuZGItNGYxZTJkM2M=", {"env": [OTHER], "log": "auth d2FuZGItNGYxZTJkM2M="}),
    "a known secret within base64": ("kYi00ZjFlMmQzY", {"env": [OTHER], "log": "Basic eDp3YW5kYi00ZjFlMmQzYw=="}),
    "a known secret in a URL": ("a%2Fb%20cdef", {**env("KEY", "a/b cdef"), "log": "GET /?q=a%2Fb%20cdef"}),
    "an AWS key": ("AKIAIOSFODNN7EXAMPLE", {"log": "key AKIAIOSFODNN7EXAMPLE"}),
    "a JWT in a log": (f"{JWT}x", {"log": f"Authorization: Bearer {JWT}x"}),
    "token= in a log": ("logtok-12345", {"log": "POST /x?token=logtok-12345 200"}),
    "a private key in a log with times": ("MIIEvQIB", {"log": f"T1 {PEM}".replace("\n", "\nT2 ")}),
    "a header of a probe": (
        "probe-hdr-123",
        {"livenessProbe": {"exec": {"command": ["curl", "-H", "X-Token: probe-hdr-123", "http://x"]}}},
    ),
    "httpHeaders of a probe": (
        "probe-http-1",
        {"livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": "Bearer probe-http-1"}]}}},
    ),
    "a short secret in a log": ("s3cr3", {**env("PASSWORD", "s3cr3"), "log": "password is s3cr3"}),
    "an attribute of a volume": (
        "csi-key-1234",
        {"volumes": [{"name": "v", "csi": {"driver": "d", "volumeAttributes": {"accessKey": "csi-key-1234"}}}]},
    ),
    "a known secret after =": ("sk-live-00aa", {**env("OPENAI_API_KEY", "sk-live-00aa"), "log": "key=sk-live-00aa"}),
    "the last words of a pod": (
        "status-tok-77",
        {"status": {"rootCause": {"message": "401 for token=status-tok-77"}}},
    ),
}


def evidence_of(planted: JsonObject) -> Evidence:
    """A job and a pod with the secret where it is planted."""
    own = ("annotations", "status", "log", "volumes")
    container: JsonObject = {"name": "trainer", **{key: item for key, item in planted.items() if key not in own}}
    pod_spec: JsonObject = {"containers": [container], "volumes": planted.get("volumes", [])}
    metadata: JsonObject = {"name": "j", "namespace": "n", "uid": "u", "annotations": planted.get("annotations", {})}
    template: JsonObject = {"spec": pod_spec}
    job: JsonObject = {"metadata": metadata, "spec": {"template": template}, "status": planted.get("status", {})}
    pod: JsonObject = {"kind": "Pod", "metadata": {**metadata, "name": "j-worker-0"}, "spec": pod_spec}
    log = Log("j-worker-0", f"{planted.get('log', 'nothing')}\n")
    return Evidence(source="s", taken_at=datetime.now(UTC), job=job, pods=(pod,), logs=(log,))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_secret_is_in_no_file_of_a_report(shape: str) -> None:
    secret, planted = SHAPES[shape]
    known = evidence_of(planted)
    assert any(secret in content for content in files(known).values()) or "\n" in str(planted) or "last" in secret
    cleaned = files(without_secrets(known))
    assert [path for path, content in cleaned.items() if secret in content] == []


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


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a token=x b\r\nc", f"a token={REDACTED}\r\nc"),
        ('{"password": "a\\"b", "x": 1}', f'{{"password": {REDACTED}'),
        ("--api-key x --epochs 3", f"--api-key {REDACTED}"),
        ("Cookie: a=b; c=d\nnext", f"Cookie: {REDACTED}\nnext"),
        (f"a\n{PEM}\nb", f"a\n{REDACTED}\nb"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc", REDACTED),
        ("redis://:pw@a:1,redis://b:pw@c:2", f"redis://{REDACTED}@c:2"),
        ("ghp_0123456789abcdefABCDEF", REDACTED),
    ],
)
def test_the_rest_of_a_line_goes_with_a_secret_that_has_a_name(text: str, left: str) -> None:
    assert without_telling(text) == left


@pytest.mark.parametrize(
    "piece",
    [
        *("a", "eyJ", "-eyJaaaaaa", "eyJaaaaaa.", "a://", "a://b:c", "token", "token=", "key.", "x=", '"', "\\", '\\"'),
        *("--p ", "-p a ", "-----BEGIN PRIVATE KEY-----", "sk-", "Key", 'token="', "'", "@", "a@", "://@", "KEY: "),
        *("= ", ": \t"),
    ],
)
def test_a_line_of_any_length_is_read_in_one_go(piece: str) -> None:
    """With time that grows by the square of its length, one line would take hours."""
    without_telling(piece * (2**18 // len(piece)))


@given(st.text(), st.text())
def test_a_value_of_a_telling_name_is_left_out_of_any_text(before: str, after: str) -> None:
    cleaned = without_telling(f"{before}\n--api-token=correct-horse\n{after}")
    assert "correct-horse" not in cleaned


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "api-key", "AccountKey", "X-Amz-Signature", "dbPassword", "--auth", "PGPASSWD"]
)
def test_names_are_recognized_by_their_words(name: str) -> None:
    assert is_telling(name)


@pytest.mark.parametrize("name", ["tokens", "KeyError", "key", "monkey", "author", "passes", "keyboard", "", "pass"])
def test_everyday_words_are_no_evidence(name: str) -> None:
    assert not is_telling(name)
