"""The operator as a real process, and what it is allowed to do."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dtj.api.json import JsonObject
from dtj.kube.rbac import FOR_GANGS, FOR_KUEUE, FOR_NETWORK_POLICIES, LEADER_ELECTION_RULES, NAMESPACE_RULES, PolicyRule
from forks import Forked
from patience import PATIENCE_SECONDS
from support.programs import OPERATOR, start
from support.waiting import eventually
from testbed import ControlPlane

USER = "dtj-operator"
"""Who the operator is to the API server; RBAC gives it what :func:`grant` lists, and nothing else."""

GRACE_SECONDS = 25.0
"""An end within these is in time: Kubernetes kills a pod 30 s after it was asked to stop."""


def _rules(*tables: tuple[PolicyRule, ...]) -> list[JsonObject]:
    return [
        {"apiGroups": [right.group], "resources": [right.path], "verbs": list(right.verbs)}
        for table in tables
        for right in table
    ]


def set_rights(plane: ControlPlane, namespace: str, *, without: str = "") -> None:
    """Take one right, such as ``delete pods``, from the operator's role in a namespace; or give all back.

    Returns when the API server refuses what is taken: it learns of changed roles a moment later.
    """
    verb, _, resource = without.partition(" ")
    rules = _rules(NAMESPACE_RULES, FOR_NETWORK_POLICIES, LEADER_ELECTION_RULES, *FOR_GANGS.values())
    for rule in rules:
        if rule["resources"] == [resource]:
            rule["verbs"] = [given for given in _texts(rule["verbs"]) if given != verb] or ["none"]
    role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/{USER}"
    plane.api.request("PATCH", role, {"rules": rules})
    for rule in rules:
        if rule["resources"] == [resource]:
            eventually(partial(_is_refused, plane, namespace, verb, resource, group=_texts(rule["apiGroups"])[0]))


def _is_refused(plane: ControlPlane, namespace: str, verb: str, resource: str, *, group: str) -> None:
    name, _, part = resource.partition("/")
    asked = {"namespace": namespace, "verb": verb, "group": group, "resource": name, "subresource": part}
    review = {"spec": {"user": USER, "resourceAttributes": asked}}
    answer = plane.api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert answer["status"].get("allowed") is not True, f"{USER} may still {verb} {resource}"


def _texts(value: object) -> list[str]:
    assert isinstance(value, list)
    return [str(item) for item in value]


def grant(plane: ControlPlane, namespace: str, *more: tuple[PolicyRule, ...]) -> None:
    """Give the operator its rights in one namespace, those of an election, and more."""
    rules = _rules(NAMESPACE_RULES, FOR_NETWORK_POLICIES, LEADER_ELECTION_RULES, *FOR_GANGS.values(), *more)
    plane.grant(USER, rules, namespace=namespace)


def grant_flavors(plane: ControlPlane, namespace: str) -> None:
    """Let the operator read ResourceFlavors, as the chart does in a cluster with Kueue."""
    plane.grant(USER, _rules(FOR_KUEUE), name=f"{USER}-{namespace}")


class OperatorProcess:
    """``python -m dtj.app.main``. Its log is in ``log``; use it as a context manager, so that it ends in any case.

    It is forked from a process that has imported what the operator imports.
    """

    def __init__(self, kubeconfig: Path, *arguments: str, log: Path) -> None:
        self.log = log
        ports = ("--health-port=0", "--metrics-port=0")
        given = [argument for argument in ports if not any(a.startswith(argument[:-1]) for a in arguments)]
        self._arguments = [f"--kubeconfig={kubeconfig}", "--log-format=text", *given, *arguments]
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._logged_before = 0

    @classmethod
    def serving(cls, plane: ControlPlane, namespaces: Sequence[str], *arguments: str, log: Path) -> OperatorProcess:
        """An operator of its own user for these namespaces; not started yet."""
        scope = [f"--namespace={namespace}" for namespace in namespaces]
        return cls(plane.kubeconfig_for(USER), *scope, *arguments, log=log)

    def __enter__(self) -> OperatorProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self._logged_before = len(self.lines())
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("KUBECONFIG", "DTJ_OPERATOR_"))}
        with self.log.open("ab") as log, open(os.devnull) as nothing:
            streams = (nothing.fileno(), log.fileno(), log.fileno())
            self._process = start(OPERATOR, self._arguments, environment, streams=streams)

    def kill(self) -> None:
        """SIGKILL, as a node's crash would; nobody hears of it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> tuple[int, float]:
        """SIGTERM. Returns the exit code and how many seconds the end took."""
        assert self._process is not None
        started = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        code = self.wait()
        return code, time.monotonic() - started

    def wait(self) -> int:
        """The exit code of a process that is about to end."""
        assert self._process is not None
        code = self._process.wait(timeout=PATIENCE_SECONDS)
        self._process = None
        return code

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    @property
    def defects(self) -> list[str]:
        """The lines that no operator should write."""
        return [line for line in self.lines() if " ERROR " in line or "Traceback" in line]

    def await_serving(self) -> None:
        """Wait until the process that was started last serves; before that, SIGTERM is its end without a word."""

        def serves() -> None:
            lines = self.lines()[self._logged_before :]
            assert any("runs jobs" in line for line in lines), "\n".join(self.lines())

        eventually(serves)

    def await_line(self, part: str) -> str:
        """Wait for a log line that contains ``part``; the first of them."""

        def found() -> str:
            matching = [line for line in self.lines() if part in line]
            assert matching, f"{part!r} is not in the log:\n" + "\n".join(self.lines())
            return matching[0]

        return eventually(found)
