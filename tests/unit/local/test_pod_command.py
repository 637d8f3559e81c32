"""What a pod's main container executes on this machine, with which environment, and what it cannot have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dtj.api.json import JsonObject
from dtj.local.pod_command import Command, command_of, image_of, omissions_of, problems_of
from dtj.local.trainer import Trainer

TRAINER = Trainer(Path("/venv/bin/python"), source=Path("/checkout/trainer-image"))


def pod(**container: object) -> JsonObject:
    return {"spec": {"containers": [{"name": "trainer", "image": "example/trainer:1", **container}]}}  # type: ignore[dict-item]


def command(body: JsonObject, environ: dict[str, str] | None = None, **defaults: str) -> Command:
    return command_of(
        body, trainer=TRAINER, environ={"PATH": "/bin"} if environ is None else environ, defaults=defaults
    )


def test_without_a_command_the_trainer_runs_as_its_image_would() -> None:
    dockerfile = Path(__file__).resolve().parents[3] / "trainer-image" / "Dockerfile"
    (line,) = [line for line in dockerfile.read_text().splitlines() if line.startswith("ENTRYPOINT ")]
    program, *options = json.loads(line.partition(" ")[2])
    assert program == "dtj-launch"
    ours = ("/venv/bin/python", "-m", "dtj_launch", *options, "--epochs=1")
    assert command(pod(args=["--epochs=1"])).arguments == ours


def test_a_command_finds_the_trainers_python_first() -> None:
    found = command(pod(command=["python", "train.py"], args=["-v"]))
    assert found.arguments == ("python", "train.py", "-v")
    assert found.environment["PATH"] == "/venv/bin:/bin"
    assert found.environment["PYTHONPATH"] == "/checkout/trainer-image"


def test_a_path_of_the_pod_does_not_hide_the_trainers_python() -> None:
    assert command(pod(env=[{"name": "PATH", "value": "/opt/bin"}])).environment["PATH"] == "/venv/bin:/opt/bin"


@pytest.mark.parametrize(
    ("value", "python_path"),
    [("/code:/libraries", "/code:/libraries:/checkout/trainer-image"), ("", "/checkout/trainer-image")],
)
def test_a_python_path_of_the_pod_does_not_hide_the_trainer(value: str, python_path: str) -> None:
    found = command(pod(env=[{"name": "PYTHONPATH", "value": value}])).environment
    assert found["PYTHONPATH"] == python_path


def test_references_to_variables_are_filled_in_as_kubernetes_does() -> None:
    variables: list[JsonObject] = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)$(C)$$(A)"},
        {"name": "C", "value": "3"},
    ]
    found = command(pod(env=variables, args=["--x=$(B)", "$(NONE)", "$HOME"]))
    assert found.environment["B"] == "1$(C)$(A)"
    assert found.arguments[-3:] == ("--x=1$(C)$(A)", "$(NONE)", "$HOME")


def test_the_pods_variables_win_over_the_runners_and_those_over_the_defaults() -> None:
    body = pod(env=[{"name": "A", "value": "pod"}])
    found = command(body, {"A": "runner", "B": "runner"}, A="default", B="default", C="default").environment
    assert (found["A"], found["B"], found["C"]) == ("pod", "runner", "default")


def test_what_belongs_to_the_runner_is_not_passed_on() -> None:
    environ = {"TF_CONFIG": "{}", "DTJ_ROLE": "chief", "PYTHONHOME": "/x", "VIRTUAL_ENV": "/y", "HOME": "/home/a"}
    found = command(pod(), environ).environment
    assert not {"TF_CONFIG", "DTJ_ROLE", "PYTHONHOME", "VIRTUAL_ENV"} & set(found)
    assert found["HOME"] == "/home/a"


def test_the_format_and_the_level_of_the_log_are_passed_on() -> None:
    environ = {"DTJ_LOG_FORMAT": "json", "DTJ_LOG_LEVEL": "debug", "DTJ_LOG_DIR": "/elsewhere"}
    found = command(pod(), environ).environment
    assert {name: found.get(name) for name in environ} == {**environ, "DTJ_LOG_DIR": None}


def test_peers_on_this_machine_are_not_asked_for_through_a_proxy() -> None:
    found = command(pod(), {"no_proxy": "example.com", "http_proxy": "http://proxy:3128"}).environment
    assert found["no_proxy"] == "example.com,127.0.0.1,localhost"
    assert found["NO_PROXY"] == "127.0.0.1,localhost"


def test_a_value_from_the_cluster_is_taken_from_the_runners_environment_or_missed() -> None:
    secret: JsonObject = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    body = pod(env=[{"name": "A", "value": "1"}, secret])
    assert problems_of(body, {}) == (
        "spec.containers[0].env[1].valueFrom: TOKEN comes from the cluster, and there is none on this machine: "
        "export TOKEN before the run",
    )
    assert problems_of(body, {"TOKEN": "t"}) == ()
    assert command(body, {"TOKEN": "t"}).environment["TOKEN"] == "t"


def test_variables_from_a_config_map_are_missed() -> None:
    (problem,) = problems_of(pod(envFrom=[{"configMapRef": {"name": "c"}}]), {})
    assert problem.startswith("spec.containers[0].envFrom: ")


def test_a_text_that_no_process_can_get_is_named() -> None:
    body = pod(command=["sh", "a\0b"], args=["\0"], env=[{"name": "A", "value": "\0"}])
    assert problems_of(body, {}) == tuple(
        f"spec.containers[0].{field}: holds a NUL character, which no process can get"
        for field in ("command[1]", "args[0]", "env[0]")
    )


def test_what_is_not_played_on_this_machine_is_named() -> None:
    body: JsonObject = {
        "spec": {
            "initContainers": [{"name": "fetch"}],
            "containers": [{"name": "shipper"}, {"name": "trainer", "image": "i"}],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "dtj-checkpoint"}, {"name": "dtj-memory"}],
        }
    }
    assert omissions_of(body) == ("init container fetch", "sidecar shipper", "volume data")
    assert image_of(body) == "i"
    assert omissions_of(pod()) == ()
    assert omissions_of(pod(workingDir="/code")) == ("workingDir /code",)
