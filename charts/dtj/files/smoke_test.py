"""What `helm test` runs: a job that cannot run must get the operator's answer. No pod is made for it.

Usage: smoke_test.py NAMESPACE SECONDS
"""

import asyncio
import secrets
import sys

from dtj.api import names
from dtj.api.json import JsonObject, dig, objects, text
from dtj.kube.client import KubeGateway
from dtj.kube.config import ConnectionSource
from dtj.kube.gateway import JOBS, Gateway


def unrunnable(name: str) -> JsonObject:
    """A valid job that asks for an accelerator which no operator knows."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name},
        "spec": {
            "strategy": "OneDevice",
            "accelerator": {"profile": name, "count": 1},
            "template": {"spec": {"containers": [{"name": names.MAIN_CONTAINER, "image": "unused"}]}},
            "replicaSpecs": {"worker": {}},
        },
    }


async def answer(gateway: Gateway, *, namespace: str, name: str) -> str:
    """The operator's words about the job, as soon as there are any."""
    while True:
        job = await gateway.get(JOBS, namespace=namespace, name=name)
        for condition in objects(dig(job, "status", "conditions")):
            if condition["type"] == names.Condition.INVALID and condition["status"] == "True":
                return text(condition["message"])
        await asyncio.sleep(0.5)


async def submit(namespace: str, *, patience: float) -> str:
    """Submit the job, wait for the answer, and delete the job again. Raises TimeoutError."""
    gateway = await KubeGateway.connect(ConnectionSource())
    name = f"helm-test-{secrets.token_hex(4)}"
    try:
        job = await gateway.create(JOBS, namespace=namespace, body=unrunnable(name))
        print(f"created job {namespace}/{name}")
        try:
            async with asyncio.timeout(patience):
                return await answer(gateway, namespace=namespace, name=name)
        finally:
            await gateway.delete(JOBS, namespace=namespace, name=name, uid=text(dig(job, "metadata", "uid")))
    finally:
        await gateway.close()


def main(namespace: str, patience: str) -> None:
    try:
        print(f"the operator answered: {asyncio.run(submit(namespace, patience=float(patience)))}")
    except TimeoutError:
        sys.exit(f"no operator answered within {patience} s: look at its log")


main(*sys.argv[1:])
