"""The operator's command line, settings and log lines, and its settings of kopf."""

from __future__ import annotations

import dataclasses
import json
import logging
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from dtj.app import main as command
from dtj.app.kopf_session import connection_info
from dtj.app.settings import OperatorSettings, SettingsError
from dtj.app.watch import QuietRetries, make_settings
from dtj.engine.logs import LogFormat
from dtj.kube.config import ConnectionSource


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[OperatorSettings]:
    """The settings with which the operator would have been started."""
    seen: list[OperatorSettings] = []

    def operate(settings: OperatorSettings) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setattr(command, "operate", operate)
    return seen


def test_every_setting_is_an_option_with_its_default(started: list[OperatorSettings]) -> None:
    help_text = CliRunner().invoke(command.main, ["--help"]).output
    for field in dataclasses.fields(OperatorSettings):
        if field.name not in ("instance", "namespaces"):
            assert f"--{field.name.replace('_', '-')}" in help_text
    assert CliRunner().invoke(command.main, []).exit_code == 0
    assert started == [OperatorSettings()]


def test_options_and_environment_variables_become_settings(started: list[OperatorSettings]) -> None:
    arguments = ["-n", "a", "--namespace", "b", "--workers", "3", "--log-format", "json", "--restricted"]
    environment = {"DTJ_OPERATOR_HEALTH_PORT": "0", "DTJ_OPERATOR_WORKERS": "99"}
    assert CliRunner().invoke(command.main, arguments, env=environment).exit_code == 0
    (settings,) = started
    assert settings.namespaces == ("a", "b")
    assert settings.workers == 3, "an option wins over the environment"
    assert settings.health_port == 0
    assert settings.log_format is LogFormat.JSON
    assert settings.restricted


def test_namespaces_come_from_the_variable_of_their_option(started: list[OperatorSettings]) -> None:
    assert CliRunner().invoke(command.main, [], env={"DTJ_OPERATOR_NAMESPACE": "team-a team-b"}).exit_code == 0
    assert started[0].namespaces == ("team-a", "team-b")


def test_the_domain_of_tfjobs_may_come_from_the_variable_of_kubeflows_operator(started: list[OperatorSettings]) -> None:
    assert CliRunner().invoke(command.main, [], env={"CUSTOM_CLUSTER_DOMAIN": "cluster.local"}).exit_code == 0
    assert started[0].tfjob_cluster_domain == "cluster.local"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["-n", "a", "-A"], "--all-namespaces"),
        (["--workers", "0"], "0 is not in the range"),
        (["--log-format", "xml"], "'xml' is not one of"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error_that_names_it(
    arguments: list[str], named: str, started: list[OperatorSettings]
) -> None:
    result = CliRunner().invoke(command.main, arguments)
    assert result.exit_code == 2
    assert named in " ".join(result.output.split())
    assert started == []


def test_without_namespaces_all_are_watched() -> None:
    assert OperatorSettings().watched_namespaces == (None,)
    assert OperatorSettings(namespaces=("a", "b")).watched_namespaces == ("a", "b")


def test_a_file_of_profiles_that_cannot_be_used_is_a_setting_that_cannot(tmp_path: Path) -> None:
    assert "tpu-v5e" in OperatorSettings().profiles()
    with pytest.raises(SettingsError, match="none: No such file"):
        OperatorSettings(accelerator_profiles=tmp_path / "none").profiles()


# -- kopf -------------------------------------------------------------------------------------------------------


def test_kopf_never_gives_up_never_writes_and_looks_around_only_in_a_whole_cluster() -> None:
    namespaced = make_settings(namespaced=True)
    backoffs = namespaced.networking.error_backoffs
    for _ in range(2):
        assert len(list(islice(iter(backoffs), 500))) == 500, "endless, and each time from the start"  # type: ignore[arg-type]
    assert namespaced.watching.reconnect_backoff >= 1.0, "a list and a watch follow, however often history is lost"
    assert not namespaced.posting.enabled
    assert namespaced.scanning.disabled
    assert not make_settings(namespaced=False).scanning.disabled


@pytest.mark.parametrize(
    ("name", "message", "passes"),
    [
        ("kopf._core.reactor", "Request attempt #1 failed; will retry: GET /apis", True),
        ("kopf._core.reactor", "Request attempt #2 failed; will retry: GET /apis", False),
        ("kopf._core.reactor", "Request attempt #17/20 failed; will retry: GET /apis", False),
        ("kopf._core.reactor", "Something else", True),
        ("dtj.app", "Request attempt #2 is ours", True),
    ],
)
def test_kopf_complains_of_an_outage_once(name: str, message: str, passes: bool) -> None:
    record = logging.LogRecord(
        name, logging.ERROR if "failed" in message else logging.INFO, __file__, 1, message, (), None
    )
    assert QuietRetries().filter(record) is passes
    assert record.levelno < logging.ERROR, "that an attempt failed which will be made again is no error"


async def test_kopf_connects_as_our_own_gateway_does(tmp_path: Path) -> None:
    kubeconfig = {
        "current-context": "other",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(kubeconfig))
    info = await connection_info(ConnectionSource(kubeconfig=str(file), context="here"))
    assert (info.server, info.scheme, info.token, info.insecure) == ("https://127.0.0.1:6443", "Bearer", "secret", True)
    assert info.trust_env is False
