"""Jobs in one namespace of a cluster with nodes, as their user sees them through kubectl."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from builders import manifest
from dtj.api.json import JsonObject, dig, objects
from dtj.client.checks import manifests_of
from dtj.client.code_manifest import with_code
from dtj.client.code_pack import pack
from patience import PATIENCE_SECONDS
from testbed import Cluster, tiny_image
from testbed.processes import wait_until
from testbed.rest import Json

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@dataclass(frozen=True)
class ClusterJobs:
    """One namespace of a cluster in which an operator runs jobs."""

    cluster: Cluster
    namespace: str

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints, in this namespace. Raises KubectlError."""
        # First, since what follows `--` of an exec is not for kubectl.
        return self.cluster.kubectl("-n", self.namespace, *arguments, stdin=stdin).stdout

    def submit(self, body: JsonObject) -> None:
        """``kubectl apply``."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def submit_with_code(self, body: JsonObject, folder: Path) -> None:
        """As ``dtj submit --code FOLDER -o json | kubectl apply -f -``: what is printed is complete."""
        (found,) = manifests_of(body)
        submitted = with_code(found, pack(folder))
        for each in submitted.objects:
            self.submit(each)

    def await_condition(self, job: str, condition: str) -> None:
        """``kubectl wait`` while the job makes progress; fails with what the cluster reports about the job."""
        wait = ("wait", "-n", self.namespace, f"dtj/{job}", f"--for=condition={condition}")
        steps = 0
        while True:
            waited = self.cluster.kubectl(*wait, f"--timeout={PATIENCE_SECONDS:.0f}s", check=False)
            if waited.returncode == 0:
                return
            before, steps = steps, self._steps()
            assert steps > before, f"{waited.stderr}\n{self.story(job)}"

    def _steps(self) -> int:
        """The sum of the newest steps that the pods have printed."""
        logs = map(self.log, self.pods())
        return sum(max(map(int, re.findall(r"^step (\d+)/", log, re.MULTILINE)), default=0) for log in logs)

    def await_log(self, pod: str, text: str) -> None:
        """Wait until a pod has printed this."""
        wait_until(lambda: text in self.log(pod), what=f"{pod} to print {text!r}")

    def await_step(self, pod: str, *, least: int = 1) -> None:
        """Wait until a pod has reported this step of its training, or a later one."""
        wait_until(
            lambda: any(int(step) >= least for step in re.findall(r"^step (\d+)/", self.log(pod), re.MULTILINE)),
            what=f"{pod} to train step {least}",
        )

    def log(self, pod: str) -> str:
        """What a pod has printed so far; empty where it is not there, or has not started."""
        printed = ""

        def read() -> bool:
            # A machine that stands still for some seconds answers with an error, which says nothing of the pod.
            nonlocal printed
            done = self.cluster.kubectl("logs", pod, "-n", self.namespace, check=False)
            printed = done.stdout
            return done.returncode == 0 or "not found" in done.stderr or "waiting to start" in done.stderr

        wait_until(read, what=f"the log of {pod}")
        return printed

    def pods(self) -> dict[str, Json]:
        """The pods, by name."""
        found = self.cluster.api.request("GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def job(self, name: str) -> Json:
        """A job."""
        path = f"/apis/training.dtj.dev/v1alpha1/namespaces/{self.namespace}/distributedtrainingjobs/{name}"
        return self.cluster.api.request("GET", path)

    def uids(self) -> dict[str, str]:
        """Which pods there are: UIDs by name."""
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def events(self, reason: str) -> list[Json]:
        """The events of a reason."""
        found = self.cluster.api.request("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")["items"]
        return [event for event in found if event.get("reason") == reason]

    def suspend(self, job: str, *, suspend: bool) -> None:
        """Set ``runPolicy.suspend``."""
        patch = json.dumps({"spec": {"runPolicy": {"suspend": suspend}}})
        self.kubectl("patch", f"dtj/{job}", "--type=merge", f"--patch={patch}")

    def delete(self, job: str) -> None:
        """``kubectl delete``."""
        self.kubectl("delete", f"dtj/{job}")

    def left(self) -> str:
        """Names of what is left in the namespace of all that a job makes."""
        return self.kubectl("get", "dtj,pods,services,persistentvolumeclaims", "-o", "name")

    def story(self, job: str) -> str:
        """All that the cluster says of a job: description, events, pods, and the logs of all pods."""
        asked = (
            ["describe", f"dtj/{job}"],
            ["get", "pods", "-o", "wide"],
            ["get", "events", "--sort-by=.lastTimestamp"],
            ["logs", "-l", f"training.dtj.dev/job-name={job}", "--prefix", "--tail=100", "--max-log-requests=20"],
        )
        outputs = (self.cluster.kubectl(*words, "-n", self.namespace, check=False) for words in asked)
        return "\n".join(done.stdout + done.stderr for done in outputs)


def tiny(name: str, script: str, *, roles: dict[str, int], **spec: object) -> JsonObject:
    """A job that runs a shell script in the image that the testbed's node has."""
    container = {
        "name": "trainer",
        "image": tiny_image.NAME,
        "imagePullPolicy": "Never",
        "command": ["sh", "-ec"],
        "args": [script],
    }
    template = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}
    return manifest(name, roles=roles, template=template, **spec)  # type: ignore[arg-type]


def example(name: str, *, image: str | None = None) -> JsonObject:
    """A manifest of examples/, with the image that was built here if one is given."""
    body: JsonObject = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    if image is not None:
        (container,) = objects(dig(body, "spec", "template", "spec", "containers"))
        container["image"] = image
    return body


def training(
    name: str,
    *arguments: str,
    image: str | None = None,
    strategy: str = "MultiWorkerMirrored",
    roles: dict[str, int],
    **spec: object,
) -> JsonObject:
    """A job that trains the digits with the trainer's image; the operator's default where none is given."""
    container = {
        "name": "trainer",
        **({"image": image} if image is not None else {}),
        "args": ["--task=image-classification", "--dataset=digits", *arguments],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
    }
    return manifest(name, strategy=strategy, roles=roles, template={"spec": {"containers": [container]}}, **spec)
