"""Training a function on a cluster from a notebook: :func:`train`, and what it returns."""

from __future__ import annotations

import atexit
import os
import secrets
from collections.abc import Iterator, Mapping
from typing import Final, Self

from dtj.api import names
from dtj.api.job import Job
from dtj.api.names import job_name_from
from dtj.api.strategies import Strategy
from dtj.client.code_pack import pack
from dtj.client.function_script import Function, script_of
from dtj.client.sync import Client

SCRIPT: Final = "dtj_function.py"
"""The file of the function in the pods."""


class TrainingRun:
    """A job that :func:`train` has submitted.

    Its connection is closed at the end of the program, if not before: close it, or use it as a context manager. The job
    goes on.
    """

    def __init__(self, client: Client, job: Job) -> None:
        self.client = client
        """For all else that can be done with the job."""

        atexit.register(client.close)
        self.name = job.name
        self.namespace = job.namespace

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"TrainingRun(name={self.name!r}, namespace={self.namespace!r})"

    def close(self) -> None:
        """Close the connection to the cluster."""
        self.client.close()
        atexit.unregister(self.client.close)

    def job(self) -> Job:
        """The job as it is now. Raises NotFound."""
        return self.client.get(self.name, namespace=self.namespace)

    def wait(self, for_: str | None = None, *, timeout: float | None = None) -> Job:
        """The job, once it has ended, with success or without, or once ``for_`` is True; see :meth:`Client.wait`."""
        return self.client.wait(self.name, for_, timeout=timeout, namespace=self.namespace)

    def logs(self, *, follow: bool = False) -> Iterator[str]:
        """What the replicas print, each line with its replica's name; with ``follow`` also what comes, until the end of
        the job."""
        for line in self.client.logs(self.name, follow=follow, namespace=self.namespace):
            yield str(line)

    def delete(self) -> None:
        """Delete the job, and with it its pods and its code."""
        self.client.delete(self.name, namespace=self.namespace)


def train(
    function: Function,
    arguments: Mapping[str, object] | None = None,
    *,
    image: str,
    workers: int = 2,
    strategy: str | None = None,
    name: str | None = None,
    code: str | os.PathLike[str] | None = None,
    resources: Mapping[str, object] | None = None,
    accelerator: Mapping[str, object] | None = None,
    checkpoint: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    namespace: str | None = None,
    kubeconfig: str | None = None,
    context: str | None = None,
) -> TrainingRun:
    """Run a function on each worker of a new job, and return at once.

    The function is sent as source, and stands alone: it imports and makes what it uses; see :func:`script_of`. It runs
    as a script of the trainer, whose image, or one built on it, ``image`` is. ``code`` is a directory that is sent
    along. What it returns is lost: let it save to ``DTJ_EXPORT_DIR``, or print.

    ``strategy`` is OneDevice for one worker, else MultiWorkerMirrored. ``name`` is made of the function's name.
    ``resources`` are those of a container; ``accelerator`` and ``checkpoint`` fields of the job's spec; ``env``
    variables by name.

    Raises CodeError, InvalidManifest, ConfigError, and ApiError.
    """
    packed = pack(code, extra={SCRIPT: script_of(function, arguments or {}, code=code)})
    container: dict[str, object] = {"name": names.MAIN_CONTAINER, "image": image, "args": [f"--script={SCRIPT}"]}
    if env:
        container["env"] = [{"name": key, "value": value} for key, value in env.items()]
    if resources:
        container["resources"] = resources
    fields = {"accelerator": accelerator, "checkpoint": checkpoint}
    usual = Strategy.MULTI_WORKER_MIRRORED if workers > 1 else Strategy.ONE_DEVICE
    manifest = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name or f"{job_name_from(getattr(function, '__name__', 'job'))}-{secrets.token_hex(3)}"},
        "spec": {
            "strategy": str(strategy or usual),
            "replicaSpecs": {"worker": {"replicas": workers}},
            **{key: value for key, value in fields.items() if value is not None},
            "template": {"spec": {"containers": [container]}},
        },
    }
    client = Client(namespace=namespace, kubeconfig=kubeconfig, context=context)
    try:
        return TrainingRun(client, client.submit(manifest, code=packed))
    except BaseException:
        client.close()
        raise
