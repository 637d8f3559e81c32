"""Try an operator of TensorFlow jobs by behaviours.yaml: ``python -m conformance --adapter tfjob``.

It needs a cluster (KUBECONFIG), and of it the API alone: no scheduler knows the pods, and the runner writes their
status as a kubelet would. It works in a namespace of its own, which it deletes at the end.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import cast

import yaml
from kubernetes import config
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient

from conformance.adapters import Adapter, JsonObject

POLL_SECONDS = 0.2
JOB_KEYS = {
    "activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "managedElsewhere", "maxWorkers", "port", "resources",
    "restartPolicy", "roles", "successPolicy", "suspend", "ttlSecondsAfterFinished",
}  # fmt: skip


class Api:
    """The API of a cluster, and a new namespace of it."""

    def __init__(self) -> None:
        client = DynamicClient(config.new_client_from_config(), discoverer=lambda *_: None)
        self._request = partial(client.request, serialize=False)
        self.namespace = f"conformance-{uuid.uuid4().hex[:8]}"
        self("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    def __call__(self, method: str, path: str, body: JsonObject | None = None) -> JsonObject:
        """The answer; a path without a slash in front is of the namespace's core group. Raises ApiException."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        path = path if path.startswith("/") else f"/api/v1/namespaces/{self.namespace}/{path}"
        return cast(JsonObject, json.loads(self._request(method, path, body=body, content_type=kind).data))

    def if_there(self, method: str, path: str, body: JsonObject | None = None) -> JsonObject | None:
        """As a call; None where the object is gone, or another one has its name."""
        try:
            return self(method, path, body)
        except ApiException as error:
            if error.status in (404, 409):
                return None
            raise


def run_of(pod: JsonObject) -> tuple[str, int]:
    """Which run of its replica a pod is: its UID, and how often its containers were started again."""
    return pod["metadata"]["uid"], sum(each["restartCount"] for each in pod["status"].get("containerStatuses", []))


def is_active(pod: JsonObject) -> bool:
    """Whether it has not ended."""
    return pod["status"]["phase"] not in ("Succeeded", "Failed")


def selects(service: JsonObject, pod: JsonObject) -> bool:
    """Whether the Service leads to the pod."""
    selector = service["spec"].get("selector") or {"": ""}
    return bool(selector.items() <= pod["metadata"]["labels"].items())


def now() -> str:
    """The time, as the API has it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, value: str, **more: str) -> JsonObject:
    """A condition of a pod."""
    return {"type": kind, "status": value, "lastTransitionTime": now(), **more}


def status(pod: JsonObject, phase: str, code: int = 0, *, again: bool = False) -> JsonObject:
    """What a kubelet writes of a pod whose containers run, or have ended with this code, and run again if so told."""
    ended = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": now()}}
    runs = phase == "Running"
    shared = {
        "imageID": "",
        "ready": runs,
        "restartCount": run_of(pod)[1] + again,
        "state": {"running": {"startedAt": now()}} if runs else ended,
        "lastState": ended if again else {},
    }
    containers = [{"name": each["name"], "image": each["image"], **shared} for each in pod["spec"]["containers"]]
    return {"phase": phase, "conditions": [condition("Ready", str(runs))], "containerStatuses": containers}


class Trial:
    """One behaviour, tried with one job."""

    def __init__(self, api: Api, adapter: Adapter, behaviour: JsonObject, *, within: float) -> None:
        self.api, self.adapter, self.behaviour, self.within = api, adapter, behaviour, within
        self.name, self.wanted = str(behaviour["id"]), dict(behaviour["job"])
        self.jobs = f"/apis/{adapter.API}/namespaces/{api.namespace}/{adapter.PLURAL}"
        self.path, self.refusal = f"{self.jobs}/{self.name}", ""
        self.job: JsonObject | None = None
        self.pods: list[tuple[str, JsonObject]] = []  # each with its replica, such as worker-0; none that is deleted
        self.services: list[JsonObject] = []

    def run(self) -> str:
        """What is seen in place of what must hold; empty if all holds."""
        try:
            self.api("POST", self.jobs, self.adapter.manifest(self.name, self.wanted))
        except ApiException as error:
            if "told" not in self.behaviour["steps"][0]["then"]:
                raise
            self.refusal = str(error.body)  # it did not take the job
        for number, step in enumerate(self.behaviour["steps"], 1):
            self.look()
            self.before = {replica: run_of(pod) for replica, pod in self.pods}
            for event, subject in step.get("do", {}).items():
                getattr(self, f"do_{event}")(subject)
            if wrong := self.await_all(**step["then"]):
                return f"step {number}: {wrong}"
        return ""

    def await_all(self, *, stays: float = 0, **wanted: object) -> str:
        """Wait until all of this holds at the same time, and for the seconds that it must stay so."""
        deadline, since = time.monotonic() + self.within, None
        while True:
            asked = time.monotonic()
            self.look()
            seen = {key: getattr(self, f"see_{key}")(value) for key, value in wanted.items()}
            wrong = "; ".join(f"{key}: {seen[key]}, not {value}" for key, value in wanted.items() if seen[key] != value)
            since = None if wrong else since or asked
            if since is not None and asked - since >= stays:
                return ""
            if wrong and asked > deadline:
                return wrong
            time.sleep(POLL_SECONDS)

    def look(self) -> None:
        """See what there is now. Pods that wait for their kubelet run from now on."""
        of_job, role, index = self.adapter.LABELS
        query = f"?labelSelector={of_job}%3D{self.name}"
        pods = [pod for pod in self.api("GET", f"pods{query}")["items"] if "deletionTimestamp" not in pod["metadata"]]
        self.pods = [(f"{pod['metadata']['labels'][role]}-{pod['metadata']['labels'][index]}", pod) for pod in pods]
        self.services = self.api("GET", f"services{query}")["items"]
        self.job = self.api.if_there("GET", self.path)
        for pod in pods:
            if pod["status"]["phase"] == "Pending" and self.behaviour.get("pods_start", True):
                self.write(pod, status(pod, "Running"))

    def write(self, pod: JsonObject, told: JsonObject) -> None:
        """Write the status of this very pod, if it is still there."""
        uid = {"uid": pod["metadata"]["uid"]}
        self.api.if_there("PATCH", f"pods/{pod['metadata']['name']}/status", {"metadata": uid, "status": told})

    # -- what happens --------------------------------------------------------------------------------------------

    def do_exit(self, codes: dict[str, int]) -> None:
        """The containers of these replicas end with these codes; the pod's restart policy says what follows."""
        for replica, code in codes.items():
            pod = dict(self.pods)[replica]
            again = pod["spec"]["restartPolicy"] in ("Always", "OnFailure" if code else "")
            self.write(pod, status(pod, "Running" if again else "Failed" if code else "Succeeded", code, again=again))

    def do_evict(self, replica: str) -> None:
        """The kubelet takes the pod away, because its node has too little memory."""
        pod = dict(self.pods)[replica]
        conditions = [condition("DisruptionTarget", "True", reason="TerminationByKubelet")]
        self.write(pod, {**status(pod, "Failed", 137), "reason": "Evicted", "conditions": conditions})

    def do_delete(self, replica: str) -> None:
        """Somebody deletes the pod."""
        self.api("DELETE", f"pods/{dict(self.pods)[replica]['metadata']['name']}")

    def do_lose_node(self, replica: str) -> None:
        """The node is gone: the pod is deleted, and no kubelet says that it has ended."""
        pod = dict(self.pods)[replica]
        name = pod["metadata"]["name"]
        node = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "conformance-lost"}}
        self.api("POST", f"pods/{name}/binding", node)
        lost = condition("DisruptionTarget", "True", reason="DeletionByTaintManager")
        self.write(pod, {"conditions": [condition("Ready", "False"), lost]})
        self.do_delete(replica)

    def do_delete_services(self, _: bool) -> None:
        """Somebody deletes the Services."""
        for service in self.services:
            self.api("DELETE", f"services/{service['metadata']['name']}")

    def do_delete_job(self, _: bool) -> None:
        """Its user deletes the job."""
        self.api("DELETE", self.path)

    def do_set(self, change: JsonObject) -> None:
        """Its user changes the job."""
        self.wanted |= change
        self.api("PATCH", self.path, {"spec": self.adapter.manifest(self.name, self.wanted)["spec"]})

    # -- what is seen, in the form of what is wanted -------------------------------------------------------------

    def see_job(self, _: str) -> str:
        """The job's state; gone, if there is no job."""
        conditions = (self.job or {}).get("status", {}).get("conditions") or []
        holding = {each["type"] for each in conditions if each["status"] == "True"}
        states = (state for kind, state in self.adapter.STATES.items() if kind in holding)
        return next(states, "pending") if self.job else "gone"

    def see_pods(self, _: list[str]) -> list[str]:
        """The replica of each pod."""
        return sorted(replica for replica, _ in self.pods)

    def see_active(self, _: list[str]) -> list[str]:
        """The replica of each pod that has not ended."""
        return sorted(replica for replica, pod in self.pods if is_active(pod))

    def see_names(self, _: list[str]) -> list[str]:
        """The names of the pods, with JOB for that of the job."""
        return sorted(re.sub(f"^{self.name}-", "JOB-", pod["metadata"]["name"]) for _, pod in self.pods)

    def see_services(self, _: int) -> int:
        """The number of Services."""
        return len(self.services)

    def see_restarted(self, wanted: list[str]) -> list[str]:
        """Those that run again: in a new pod, or in new containers of the same."""
        runs = {replica: run_of(pod) for replica, pod in self.pods if is_active(pod)}
        return [each for each in wanted if runs.get(each, self.before[each]) != self.before[each]]

    def see_same(self, wanted: list[str]) -> list[str]:
        """Those that were not started again."""
        runs = {replica: run_of(pod) for replica, pod in self.pods}
        return [each for each in wanted if runs.get(each) == self.before[each]]

    def tf_config(self, replica: str) -> JsonObject:
        """The TF_CONFIG of a replica's first container; empty if it has none."""
        pod = dict(self.pods).get(replica)
        environment = pod["spec"]["containers"][0].get("env", []) if pod else []
        values = [each["value"] for each in environment if each["name"] == "TF_CONFIG"]
        return cast(JsonObject, json.loads(values[0])) if values else {}

    def see_tasks(self, wanted: list[str]) -> list[str]:
        """The task of each of these in its TF_CONFIG."""
        tasks = [self.tf_config(each).get("task", {}) for each in wanted]
        return [f"{task.get('type')}-{task.get('index')}" for task in tasks]

    def see_clusters(self, wanted: dict[str, JsonObject]) -> dict[str, JsonObject]:
        """How many of each role the cluster in the TF_CONFIG of each of these has."""
        clusters = {each: self.tf_config(each).get("cluster", {}) for each in wanted}
        return {each: {role: len(found) for role, found in cluster.items()} for each, cluster in clusters.items()}

    def see_port(self, wanted: int) -> object:
        """The port of all addresses, each of which leads to its replica by a Service; else those that do not."""
        clusters = [self.tf_config(replica).get("cluster", {}).items() for replica, _ in self.pods]
        roles = [role for cluster in clusters for role in cluster]
        found = [(each, f"{role}-{index}") for role, addresses in roles for index, each in enumerate(addresses)]
        return [each for each, replica in found if not self.leads(each, replica, wanted)] or (wanted if found else None)

    def leads(self, address: str, replica: str, port: int) -> bool:
        """Whether it does so, by a Service of the pod alone, or by the pod's host name in a Service of the job."""
        pod, services = dict(self.pods).get(replica), {each["metadata"]["name"]: each for each in self.services}
        host, subdomain = f"{address}.".split(".")[:2]
        if pod is None or not re.search(rf"\.{self.api.namespace}\.svc\b.*:{port}$", address):
            return False
        if host in services:
            return [each for _, each in self.pods if selects(services[host], each)] == [pod]
        named = (pod["spec"].get("hostname"), pod["spec"].get("subdomain"))
        return named == (host, subdomain) and subdomain in services and selects(services[subdomain], pod)

    def see_strangers(self, _: list[str]) -> list[str]:
        """The pods and Services whose controller is not the job."""
        owner = self.job and self.job["metadata"]["uid"]
        objects = [each["metadata"] for each in (*(pod for _, pod in self.pods), *self.services)]
        owned = [(each["name"], each.get("ownerReferences", [])) for each in objects]
        return [name for name, owners in owned if not any(o["uid"] == owner and o.get("controller") for o in owners)]

    def see_told(self, wanted: str) -> object:
        """These words, if the API server refuses the job with them, or a warning or a condition has them; else all."""
        events = self.api("GET", f"events?fieldSelector=type%3DWarning,involvedObject.name%3D{self.name}")["items"]
        conditions = (self.job or {}).get("status", {}).get("conditions") or []
        words = [self.refusal, *(each.get("message", "") for each in (*events, *conditions))]
        return wanted if any(wanted in each for each in words) else [each for each in words if each]


def behaviours() -> list[JsonObject]:
    """Those of behaviours.yaml. Raises ValueError where a word of it means nothing here."""
    found = cast(list[JsonObject], yaml.safe_load(Path(__file__).with_name("behaviours.yaml").read_text()))
    for each in found:
        unknown = {*each} - {"id", "says", "job", "pods_start", "steps", "not_for"} | {*each["job"]} - JOB_KEYS
        for step in each["steps"]:
            events, seen = step.get("do", {}), {*step["then"]} - {"stays"}
            unknown |= {*step} - {"do", "then"} | {*events.get("set", {})} - JOB_KEYS
            unknown |= {key for key in events if not hasattr(Trial, f"do_{key}")}
            unknown |= {key for key in seen if not hasattr(Trial, f"see_{key}")}
        if unknown:
            raise ValueError(f"behaviours.yaml: {each['id']}: no meaning of {', '.join(sorted(unknown))}")
    return found


def main() -> int:
    """Exit status: 0 if all behaviours are as they should be, 1 if one is not."""
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("--adapter", required=True, help="dtj, tfjob, or the module of your own, such as my.adapter")
    parser.add_argument("--within", type=float, default=60, help="seconds that each step may take (%(default)g)")
    parser.add_argument("--jobs", type=int, default=6, help="how many are tried at the same time (%(default)d)")
    parser.add_argument("ids", nargs="*", help="which behaviours (all)")
    given = parser.parse_args()
    chosen = [each for each in behaviours() if each["id"] in given.ids or not given.ids]
    if unknown := {*given.ids} - {each["id"] for each in chosen}:
        parser.error(f"no such behaviour: {', '.join(sorted(unknown))}")
    module = given.adapter if "." in given.adapter else f"conformance.adapters.{given.adapter}"
    adapter = cast(Adapter, importlib.import_module(module))

    def tried(behaviour: JsonObject) -> tuple[str, str]:
        if reason := behaviour.get("not_for", {}).get(given.adapter):
            return "n/a", reason
        try:
            wrong = Trial(api, adapter, behaviour, within=given.within).run()
        except (ApiException, KeyError, ValueError) as error:  # also no pod of a replica, or no JSON in TF_CONFIG
            wrong = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return ("FAIL", wrong) if wrong else ("pass", "")

    counts = dict.fromkeys(("pass", "FAIL", "n/a"), 0)
    api = Api()
    try:
        with ThreadPoolExecutor(given.jobs) as threads:
            for behaviour, (word, why) in zip(chosen, threads.map(tried, chosen), strict=True):
                counts[word] += 1
                print(f"{word:4}  {behaviour['id']:22} {behaviour['says']}{why and f' -- {why}'}", flush=True)
    finally:
        api("DELETE", f"/api/v1/namespaces/{api.namespace}")
    print(f"{counts['pass']} of {len(chosen)} pass, {counts['FAIL']} fail, {counts['n/a']} do not apply")
    return int(counts["FAIL"] > 0)


if __name__ == "__main__":
    sys.exit(main())
