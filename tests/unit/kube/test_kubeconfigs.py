"""Kubeconfigs as kubectl reads them: what it takes works, and what cannot be used is one line."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from dtj.api.json import JsonObject
from dtj.kube import config, credential_plugin
from dtj.kube.config import ConfigError, ConnectionSource

VERSION = "client.authentication.k8s.io/v1"

BASE: JsonObject = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "here",
    "contexts": [
        {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "mine"}},
        {"name": "there", "context": {"cluster": "d", "user": "u", "namespace": "theirs"}},
    ],
    "clusters": [
        {"name": "c", "cluster": {"server": "https://c.example:6443"}},
        {"name": "d", "cluster": {"server": "https://d.example:6443"}},
    ],
    "users": [{"name": "u", "user": {"token": "secret"}}],
}


def source(folder: Path, context: str | None = None, **fields: JsonValue) -> ConnectionSource:
    file = folder / "kubeconfig"
    file.write_text(json.dumps({key: value for key, value in {**BASE, **fields}.items() if value != "absent"}))
    return ConnectionSource(kubeconfig=str(file), context=context)


async def refusal(given: ConnectionSource) -> str:
    """The one line, with the name of the file, with which it is refused."""
    with pytest.raises(ConfigError) as caught:
        await given.load()
    line = str(caught.value)
    assert str(given.kubeconfig) in line
    assert "\n" not in line
    return line


@pytest.mark.parametrize("current", ["absent", "", None, "deleted"])
async def test_a_context_that_is_asked_for_needs_no_current_one(tmp_path: Path, current: str | None) -> None:
    asked = source(tmp_path, "there", **{"current-context": current})
    assert (await asked.load()).host == "https://d.example:6443"
    assert asked.namespace() == "theirs"


@pytest.mark.parametrize(
    "fields",
    [
        {"users": None},
        {"users": "absent"},
        {"users": []},
        {"users": [{"name": "u"}]},
        {"users": [{"name": "u", "user": None}]},
        {"users": [{"name": "u", "user": {"token": None, "client-certificate": ""}}]},
        {"contexts": [{"name": "here", "context": {"cluster": "c"}}]},
        {"contexts": [{"name": "here", "context": {"cluster": "c", "user": ""}}]},
    ],
)
async def test_a_user_is_not_needed(tmp_path: Path, fields: dict[str, Any]) -> None:
    configuration = await source(tmp_path, **fields).load()
    assert (configuration.host, configuration.api_key) == ("https://c.example:6443", {})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"users": [{"name": "u", "user": "token"}]}, 'users: "u" is not a mapping'),
        ({"users": [{"name": "u", "user": {"username": 5, "password": ["x"]}}]}, "cannot be used: "),
        ({"users": [{"name": "u", "user": {"auth-provider": {"name": "oidc"}}}]}, "cannot be used: "),
        ({"users": [{"name": "u", "user": {"token": "a\nb"}}]}, "the token has a line break"),
        ({"users": [{"name": "u", "user": {"tokenFile": "none"}}]}, "No such file"),
        ({"contexts": None}, 'there is no context "here": it has none'),
        ({"contexts": ["here", {"context": {}}]}, 'there is no context "here": it has none'),
        ({"contexts": [{"name": "here", "context": []}], "clusters": []}, 'there is no cluster ""'),
        ({"contexts": [{"name": "here", "context": "c"}]}, 'contexts: "here" is not a mapping'),
        ({"clusters": []}, 'there is no cluster "c"'),
        ({"clusters": [{"name": "c", "cluster": None}]}, 'there is no server of cluster "c"'),
        ({"clusters": [{"name": "c", "cluster": {"server": 5}}]}, 'there is no server of cluster "c"'),
        ({"clusters": [{"name": "c", "cluster": {"server": "10.0.0.1:6443"}}]}, "is not an address such as https://"),
        ({"clusters": [{"name": "c", "cluster": {"server": "https://c:x"}}]}, "is not an address such as https://"),
        ({"clusters": [{"name": "c", "cluster": {"server": "https://[::1"}}]}, "is not an address such as https://"),
        ({"clusters": "none"}, "is not a kubeconfig: it has no list of clusters"),
    ],
)
async def test_what_cannot_be_used_is_one_line_that_names_the_file(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    assert words in await refusal(source(tmp_path, **fields))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist: give one with --kubeconfig"),
        ("", "has no list of clusters"),
        ("just text", "has no list of clusters"),
        ("{", ": line 1, column 2: not YAML: "),
        ("\x00", "cannot be read"),
        (json.dumps({**BASE, "current-context": "far"}), 'no context "far": choose one with --context: here, there'),
        (json.dumps({**BASE, "current-context": None}), "current-context is not set: "),
    ],
    ids=["missing", "empty", "text", "broken YAML", "binary", "unknown context", "no context"],
)
async def test_what_is_no_kubeconfig_is_one_line_too(tmp_path: Path, content: str | None, words: str) -> None:
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    assert words in await refusal(ConnectionSource(kubeconfig=str(file)))


@pytest.mark.parametrize(
    ("server", "environment", "asked"),
    [
        ("https://c.example:6443", {"HTTPS_PROXY": "http://proxy:3128"}, True),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://proxy:3128"}, False),
        ("https://c.example:6443", {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": ".example"}, False),
        ("https://c.example:6443", {"HTTP_PROXY": "http://proxy:3128"}, False),
        ("https://c.example:6443", {}, False),
    ],
    ids=["named", "this machine", "excepted", "of another scheme", "none"],
)
async def test_the_environment_is_asked_for_a_proxy_where_it_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, environment: dict[str, str], asked: bool
) -> None:
    """aiohttp asks it in threads, for each call, which doubles the CPU that a call takes."""
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    configuration = await source(tmp_path, clusters=[{"name": "c", "cluster": {"server": server}}]).load()
    assert configuration.client_session_kwargs == {"trust_env": asked}


@pytest.mark.parametrize("field", ["certificate-authority-data", "client-certificate-data"])
@pytest.mark.parametrize("data", ["bm90aGluZw==", "%", "a", 5])
async def test_a_certificate_that_is_none_is_one_line(tmp_path: Path, field: str, data: JsonValue) -> None:
    cluster: JsonObject = {"server": "https://c.example"}
    user: JsonObject = {}
    (cluster if field.startswith("cert") else user)[field] = data
    broken = source(tmp_path, clusters=[{"name": "c", "cluster": cluster}], users=[{"name": "u", "user": user}])
    assert re.search(r"cannot be used: .*c(ertificate|lient)-", await refusal(broken))


async def test_of_several_files_the_first_wins_as_with_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "first").write_text(json.dumps({"current-context": "there", "contexts": BASE["contexts"]}))
    (tmp_path / "second").write_text(json.dumps({**BASE, "contexts": []}))
    monkeypatch.setenv("KUBECONFIG", ":".join(str(tmp_path / name) for name in ("empty", "none", "first", "second")))
    assert (await ConnectionSource().load()).host == "https://d.example:6443"
    assert ConnectionSource().namespace() == "theirs"


async def test_paths_count_from_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-a-file\n")
    configuration = await source(tmp_path, users=[{"name": "u", "user": {"tokenFile": "token"}}]).load()
    assert configuration.api_key == {"BearerToken": "Bearer of-a-file"}


async def test_a_user_with_a_password_is_taken(tmp_path: Path) -> None:
    configuration = await source(tmp_path, users=[{"name": "u", "user": {"username": "a", "password": "b"}}]).load()
    assert configuration.api_key == {"BearerToken": "Basic " + base64.b64encode(b"a:b").decode()}


def with_plugin(folder: Path, script: str, **fields: JsonValue) -> ConnectionSource:
    """A kubeconfig whose user has a plugin: a script of sh."""
    plugin: JsonObject = {"apiVersion": VERSION, "command": "sh", "args": ["-c", script], **fields}
    return source(folder, users=[{"name": "u", "user": {"exec": plugin}}])


def answer(**status: str) -> str:
    """The line of sh with which a plugin gives credentials."""
    return f"echo '{json.dumps({'apiVersion': VERSION, 'kind': 'ExecCredential', 'status': status})}'"


async def test_a_plugin_gives_a_token_and_may_say_more_than_a_pipe_holds(tmp_path: Path) -> None:
    given = with_plugin(tmp_path, f"head -c 200000 /dev/zero >&2; {answer(token='secret')}")
    assert (await given.load()).api_key == {"BearerToken": "Bearer secret"}


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 7", "cannot be used: exec: sh ended with code 7"),
        ("echo {", "cannot be used: exec: sh printed no JSON: "),
        (answer(), "cannot be used: exec: sh printed neither a token nor a certificate with its key"),
        ('echo "{}"', f"cannot be used: exec: sh speaks None, and the kubeconfig asks for {VERSION}"),
    ],
)
async def test_a_plugin_that_gives_no_credentials_is_one_line(tmp_path: Path, script: str, words: str) -> None:
    assert words in await refusal(with_plugin(tmp_path, script))


async def test_a_plugin_that_is_not_there_is_one_line_with_how_to_install_it(tmp_path: Path) -> None:
    missing = with_plugin(tmp_path, "", command="no-such-plugin", installHint="Install it from example.com")
    words = "exec: no-such-plugin cannot be run: No such file or directory. Install it from example.com"
    assert words in await refusal(missing)


async def test_a_plugin_that_does_not_end_is_killed_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credential_plugin, "LIMIT_SECONDS", 1.0)
    hangs = with_plugin(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 3600")
    assert "exec: sh gave no credentials within 1 s" in await refusal(hangs)
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


async def test_in_a_pod_a_kubeconfig_at_its_usual_place_comes_before_the_pods_own_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("of the pod")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr(config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    assert ConnectionSource().describe() == "service account of this pod"
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(json.dumps(BASE))
    assert (await ConnectionSource().load()).host == "https://c.example:6443"
    assert ConnectionSource().namespace() == "mine"
