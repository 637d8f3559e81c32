"""The cluster of a sample, in memory: its jobs, those that make them, kubelets and queues."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta
from typing import Any, Final
from unittest import mock

from builders import CLAIM_TEMPLATE, NOW, at, manifest
from dtj.api import names
from dtj.api.form import DTJ, Form
from dtj.api.json import JsonObject, dig, fields_of, objects, text
from dtj.api.tfjob.form import TFJOB
from dtj.core.replicas import parse_indexes
from dtj.kube.gateway import PODS, Resource, jobs_of
from dtj.kube.records import Key
from operator_adversaries.extremes import Many, Taken, json_text, plain
from operator_adversaries.sample import ALL, Act, Answer, Delete, Edit, Ends, Make, Path, Sample, Submit
from operator_adversaries.wire import Load, Wire
from support import gang_worlds
from support.fake_gateway import FakeGateway
from support.played_tfjobs import tfjob
from support.virtual_time import loop_time

VICTIM, BYSTANDER, PEER, AFTER, LATE = "digits", "other", "peer", "after", "late"
HERS, THEIRS = "team-a", "team-b"
_CLAIM: Final = {"claimTemplate": CLAIM_TEMPLATE}
SHAPES: Final[dict[tuple[str, str], dict[str, Any]]] = {
    (DTJ.kind, "fixed"): {},
    (DTJ.kind, "elastic"): {"elastic": {"maxReplicas": 4}, "tensorBoard": {}, "checkpoint": _CLAIM},
    (DTJ.kind, "servers"): {"strategy": "ParameterServer", "roles": {"chief": 1, "worker": 2, "ps": 1}},
    (DTJ.kind, "queued"): {"runPolicy": {"scheduling": {"gang": "Kueue", "queue": "team-a"}}},
    (DTJ.kind, "gang"): {"runPolicy": {"scheduling": {"gang": "Volcano"}}},
    (DTJ.kind, "alone"): {"runPolicy": {"restartScope": "Pod"}},
    (DTJ.kind, "many"): {"roles": {"worker": 40}},
    (DTJ.kind, "default queue"): {},
    (DTJ.kind, "waits"): {},
    (TFJOB.kind, "fixed"): {"roles": {"Worker": 2}},
    (TFJOB.kind, "servers"): {"roles": {"Chief": 1, "Worker": 2, "PS": 1}},
    (TFJOB.kind, "dynamic"): {"roles": {"PS": 1, "Worker": 2}, "enableDynamicWorker": True},
    (TFJOB.kind, "queued"): {"roles": {"Worker": 2}},
    (TFJOB.kind, "waits"): {"roles": {"Worker": 2}},
}
"""Jobs. What starts no container says nothing, and its kubelet writes Events, in one that waits."""
NOBODYS: Final = ("configmaps", "secrets", "pods", "services", "persistentvolumeclaims")
"""Kinds of which there is one that no job owns, and that has no label of ours."""


def job_body(form: Form, name: str, shape: str, *, load: Load | None = None) -> JsonObject:
    """What a user writes for such a job. One with a load is the victim, and may restart as often as it likes."""
    given, is_tfjob = dict(SHAPES[form.kind, shape]), form.kind == TFJOB.kind
    policy = given.pop("runPolicy", {})
    if name != VICTIM:
        policy = {**policy, "activeDeadlineSeconds": 3000 if load is None else 10**6}
    roles = given.pop("roles", None)
    if name == VICTIM and load is not None:
        roles = {**(roles or {}), "Worker" if is_tfjob else "worker": load.pods}
        policy = {**policy, "backoffLimit": 1_000_000}
        given |= {"elastic": {"maxReplicas": load.pods}} if "elastic" in given else {}
    given |= {"runPolicy": policy} if policy else {}
    body: JsonObject = tfjob(roles, **given) if is_tfjob else manifest(name, roles=roles, **given)
    labels: JsonObject = {"kueue.x-k8s.io/queue-name": "team-a"} if is_tfjob and shape == "queued" else {}
    kind: JsonObject = {"apiVersion": form.api_version, "kind": form.kind}
    return {**body, **kind, "metadata": {"name": name, "labels": labels}}


class Cluster:
    """What there is, and what is done to it."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.form: Form = TFJOB if sample.form == TFJOB.kind else DTJ
        self.jobs = jobs_of(self.form)
        self.store = FakeGateway()
        self.store.installed = {_resource(gang_worlds.KUEUE), _resource(gang_worlds.VOLCANO)}
        self.wire = Wire(self.store, faults=sample.faults, load=sample.load)
        self.pods_at: dict[str, Key] = {}
        """The pods by their addresses."""

        self.made: set[str] = set()
        """UIDs of objects that somebody else made: no kubelet runs them."""

        nobodys = {"name": "nobodys", "namespace": HERS, "uid": "nobodys"}
        for plural in NOBODYS:
            self.store.put(_named(plural), {"metadata": {**nobodys}, "spec": {}})
        if sample.shape == "default queue":
            self.store.put(_named("localqueues"), {"metadata": {"name": "default", "namespace": HERS}})
        self.nobodys = self._nobodys()
        self.answered: Counter[str] = Counter()

    # -- jobs and pods -----------------------------------------------------------------------------------------------

    def submit(self, name: str, namespace: str, shape: str, edits: tuple[tuple[Path, Any], ...] = ()) -> None:
        body = job_body(self.form, name, shape, load=self.sample.load)
        metadata = {**fields_of(body["metadata"]), "namespace": namespace, "creationTimestamp": at(loop_time())}
        self.store.put(self.jobs, self._edited({**body, "metadata": {**metadata, "generation": 1}}, edits))

    def touched(self) -> list[str]:
        """The kinds of what is nobody's and was changed or deleted."""
        return [plural for plural, body in self._nobodys().items() if body != self.nobodys[plural]]

    def _nobodys(self) -> dict[str, JsonObject | None]:
        return {plural: self.store._objects[plural].get((HERS, "nobodys")) for plural in NOBODYS}

    def there(self, name: str) -> bool:
        return any(found == name for _, found in self.store._objects.get(self.jobs.plural, {}))

    def status(self, name: str) -> JsonObject:
        found = next(body for (_, found), body in self.store._objects[self.jobs.plural].items() if found == name)
        status = found.get("status")
        if self.form.recorded_in and isinstance(status, dict):
            return fields_of(status.get("dtj"))
        return fields_of(status) if isinstance(status, dict) else {}

    def state(self, name: str) -> str:
        """As its status says; as its pods show, where the API server drops what the status says."""
        if any(fault.drops for fault in self.sample.faults):
            number = sum(found.startswith(f"{name}-") for _, found in self.store._objects.get("pods", {}))
            return "Running" if number else "without pods"
        return text(self.status(name).get("state"))

    def pods_of(self, job: str) -> dict[str, object]:
        pods = self.store._objects.get("pods", {})
        return {
            name: dig(body, "metadata", "uid")
            for (where, name), body in pods.items()
            if where in (HERS, THEIRS) and name.startswith(f"{job}-")
        }

    async def kubelets(self) -> None:
        """Run pods, and admit Workloads."""
        number = 0
        while True:
            await asyncio.sleep(5.0 if len(self.pods_at) < 1000 else 30.0)
            for (namespace, name), body in list(self.store._objects.get("pods", {}).items()):
                if body.get("status") or dig(body, "metadata", "uid") in ("nobodys", *self.made):
                    continue
                number += 1
                containers = objects(dig(body, "spec", "containers"))
                states: list[Any] = [
                    {"name": text(one.get("name")), "ready": True, "state": {"running": {}}} for one in containers
                ]
                status: JsonObject = {
                    "phase": "Running", "podIP": f"10.{namespace == HERS:d}.{number >> 8}.{number & 255}",
                    "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": states,
                }  # fmt: skip
                self.pods_at[text(status["podIP"])] = (namespace, name)
                if self.sample.shape == "waits" and namespace == HERS and name.startswith(VICTIM):
                    creating: Any = [{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}]
                    status = {"phase": "Pending", "containerStatuses": creating}
                spec = {**fields_of(body["spec"]), "nodeName": "n1"}
                self.store.put(PODS, {**body, "spec": spec, "status": status})
            for _, body in list(self.store._objects.get("workloads", {}).items()):
                if not body.get("status") and dig(body, "metadata", "uid") not in self.made:
                    self._admit(body)

    def _admit(self, body: JsonObject) -> None:
        sets = [
            {"name": one["name"], "count": one["count"], "flavors": {}} for one in objects(dig(body, "spec", "podSets"))
        ]
        conditions = [
            {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": at()}
            for kind in ("QuotaReserved", "Admitted")
        ]
        status: Any = {"conditions": conditions, "admission": {"clusterQueue": "all", "podSetAssignments": sets}}
        self.store.put(_resource(gang_worlds.KUEUE), {**body, "status": status})

    async def connect(self, host: str, port: int, **_: object) -> tuple[asyncio.StreamReader, Any]:
        """In place of a connection to the status port of a pod."""
        answers = self.sample.answers if host.startswith("10.1.") else ()
        answer = answers[self.answered[host] % len(answers)] if answers else Answer(self._usual(host))
        self.answered[host] += 1
        reader, writer = asyncio.StreamReader(), mock.Mock()
        task = asyncio.create_task(self._say(reader, answer))
        writer.close.side_effect = task.cancel
        return reader, writer

    def _usual(self, host: str) -> JsonObject:
        """What a trainer reports: it trains in the world that its pod has, if it is a member, else it waits for one."""
        training: JsonObject = {"phase": "Training", "step": 7}
        body = self.store._objects["pods"].get(self.pods_at.get(host, ("", "")))
        index = text(dig(body, "metadata", "labels", names.Label.INDEX))
        if self.sample.shape != "elastic" or not index.isdigit():
            return training
        try:
            world = json.loads(text(dig(body, "metadata", "annotations", names.Annotation.WORLD)))
            member = int(index) in parse_indexes(text(world["members"]["worker"]))
            return {**training, "world": world["generation"]} if member else {"phase": "Waiting"}
        except (ValueError, LookupError, TypeError, RecursionError):
            first = len(self.pods_at) if self.sample.load is not None else 2
            return {**training, "world": 0} if int(index) < first else {"phase": "Waiting"}

    async def _say(self, reader: asyncio.StreamReader, answer: Answer) -> None:
        body = (
            answer.body
            if isinstance(answer.body, str)
            else plain(answer.body)
            if isinstance(answer.body, Many)
            else json_text(answer.body)
        )
        whole = f"{answer.head}\r\n\r\n".encode() + body.encode(errors="surrogatepass")
        length = max(1, -(-len(whole) // answer.pieces))
        while True:
            for begin in range(0, len(whole), length):
                reader.feed_data(whole[begin : begin + length])
                await asyncio.sleep(answer.pause)
            if not answer.endless:
                break
            await asyncio.sleep(0.01)
        reader.feed_eof()

    # -- acts --------------------------------------------------------------------------------------------------------

    def carry_out(self, act: Act) -> None:
        match act:
            case Submit():
                self.submit(act.name, HERS, self.sample.shape if act.edits else "fixed", act.edits)
                return
            case Edit():
                for number in range(act.times):
                    if (found := self._picked(act.plural, act.pick)) is not None:
                        body = self._edited(found[1], act.edits)
                        if act.plural == "jobs" and any(path[0] == "spec" for path, _ in act.edits):
                            generation = dig(body, "metadata", "generation")
                            body = self._edited(body, ((("metadata", "generation"), (generation or 0) + 1),))  # type: ignore[operator]
                        self.store.put(
                            found[0], self._edited(body, ((("metadata", "annotations", "number"), str(number)),))
                        )
                return
            case Make():
                self._make(act)
                return
        plural = act.plural if isinstance(act, Delete) else "pods"
        found = self._picked(plural, act.pick)  # type: ignore[attr-defined]
        for body in self._all(plural) if act.pick == ALL else [found[1]] if found else []:  # type: ignore[attr-defined]
            self._happens(act, _named(plural), body)

    def _happens(self, act: Act, resource: Resource, body: JsonObject) -> None:
        if isinstance(act, Delete):
            self._delete(act, resource, body)
        elif isinstance(act, Ends):
            end = {
                "exitCode": act.code,
                "reason": "Error" if act.code else "Completed",
                "message": _last_words(act.message),
                "finishedAt": at(loop_time()),
            }
            status = fields_of(body.get("status"))
            ended: list[Any] = [
                {**one, "state": {"terminated": end}} for one in objects(status.get("containerStatuses"))
            ]
            phase = "Failed" if act.code else "Succeeded"
            self.store.put(
                resource, {**body, "status": {**status, "phase": phase, "conditions": [], "containerStatuses": ended}}
            )

    def _make(self, act: Make) -> None:
        found = self._picked(act.plural, act.pick)
        labels: JsonObject = {
            name: VICTIM for name, _, _ in (part.partition("=") for part in self.form.selector.split(","))
        }
        resource = found[0] if found is not None else _named(act.plural)
        body: JsonObject = (
            found[1] if found is not None else {"metadata": {"labels": {**labels}}, "spec": {"containers": []}}
        )
        kept = {
            key: value
            for key, value in fields_of(body["metadata"]).items()
            if key in ("labels", "annotations", *(["ownerReferences"] if act.owned else []))
        }
        if act.plural == "events":
            about = self._picked("pods", act.pick)
            body = {
                "metadata": {},
                "type": "Warning",
                "regarding": {"kind": "Pod", "uid": dig(about and about[1], "metadata", "uid")},
                "eventTime": at(loop_time()),
            }
        uid = f"made-{act.name}-{len(self.made)}"
        self.made.add(uid)
        metadata: JsonObject = {
            **kept,
            "name": act.name,
            "namespace": HERS,
            "uid": uid,
            "creationTimestamp": at(loop_time()),
        }
        self.store.put(resource, self._edited({**body, "metadata": metadata}, act.edits))

    def _delete(self, act: Delete, resource: Resource, body: JsonObject) -> None:
        """As an API server: it adds nanoseconds of 64 bits to its time, whose sum may wrap."""
        nanoseconds = (act.grace * 10**9 + 2**63) % 2**64 - 2**63
        when = NOW + timedelta(seconds=loop_time() + nanoseconds / 10**9)
        metadata = fields_of(body["metadata"])
        name, namespace = text(metadata["name"]), text(metadata["namespace"])
        if act.stays:
            deletion: JsonObject = {
                "deletionTimestamp": f"{when:%Y-%m-%dT%H:%M:%SZ}",
                "deletionGracePeriodSeconds": act.grace,
            }
            self.store.put(
                resource, {**body, "metadata": {**metadata, **deletion, "finalizers": ["example.com/stays"]}}
            )

            def go() -> None:
                if (namespace, name) in self.store._objects[resource.plural]:
                    self.store.remove(resource, name, namespace=namespace)

            asyncio.get_running_loop().call_later(act.stays, go)
        else:
            self.store.remove(resource, name, namespace=namespace)

    def _picked(self, plural: str, pick: int, *, named: bool = False) -> tuple[Resource, JsonObject] | None:
        plural = self.jobs.plural if plural == "jobs" else plural
        found = self._all(plural, named=named)
        return (_named(plural), found[pick % len(found)]) if found else None

    def _all(self, plural: str, *, named: bool = False) -> list[JsonObject]:
        """The objects of a kind to which something may be done; those of nobody can only be named."""
        there = sorted(self.store._objects.get(plural, {}).items())
        spared = PEER if self.sample.load is None else (PEER, LATE)
        of_hers = (
            (name, body) for (namespace, name), body in there if namespace == HERS and not name.startswith(spared)
        )
        return [body for name, body in of_hers if named or name != "nobodys"]

    def _edited(self, body: JsonObject, edits: tuple[tuple[Path, Any], ...]) -> JsonObject:
        """A copy with these values. What is not there on the way is made; what is there and in the way stays."""
        for path, value in edits:
            if isinstance(value, Taken):
                taken = self._picked(value.plural, value.pick, named=True)
                value = dig(taken[1], *value.path) if taken is not None else "x"
            body = _with(body, path, self._resolved(plain(value)))
        return body

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Taken):
            taken = self._picked(value.plural, value.pick, named=True)
            return dig(taken[1], *value.path) if taken is not None else "x"
        if isinstance(value, dict):
            return {key: self._resolved(each) for key, each in value.items()}
        return [self._resolved(each) for each in value] if isinstance(value, list) and len(value) < 100 else value


def edited(body: Any, edits: tuple[tuple[Path, Any], ...]) -> Any:
    """A copy with these values, none of which is taken from another object."""
    for path, value in edits:
        body = _with(body, path, plain(value))
    return body


def _with(body: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    key, *rest = path
    if isinstance(key, int):
        items = list(body) if isinstance(body, list) else []
        return [_with(items[0] if items else {}, tuple(rest), value), *items[1:]]
    below = body if isinstance(body, dict) else {}
    return {**below, key: _with(below.get(key), tuple(rest), value)}


def _last_words(message: Any) -> str:
    """As a kubelet stores them: 4,096 bytes at most, of valid UTF-8."""
    words = plain(message) if isinstance(message, Many) else message if isinstance(message, str) else json_text(message)
    return str(words).encode(errors="replace")[-4096:].decode(errors="replace")


def _resource(api: Any) -> Resource:
    return Resource(api.api_version, api.kind, api.plural)


def _named(plural: str) -> Resource:
    """The store goes by the plural alone."""
    return Resource("v1", "", plural)
