"""A server that speaks the protocol of S3, with a proxy in front of it that can answer badly."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

from support.faulty_store import FaultyProxy

KEYS = {"aws_access_key_id": "id", "aws_secret_access_key": "secret"}


@contextmanager
def store_with_bucket(name: str) -> Iterator[tuple[Any, FaultyProxy]]:
    """A client that is connected to the server itself, and the proxy."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client("s3", region_name="us-east-1", endpoint_url=f"http://{host}:{port}", **KEYS)
    client.create_bucket(Bucket=name)
    try:
        with FaultyProxy(host, port).serving() as proxy:
            yield client, proxy
    finally:
        # The server keeps its buckets in this process.
        for key in keys(client, name):
            client.delete_object(Bucket=name, Key=key)
        client.delete_bucket(Bucket=name)
        server.stop()


def keys(client: Any, bucket: str, prefix: str = "") -> list[str]:
    """The names of the objects, of a small bucket."""
    return [entry["Key"] for entry in client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ())]


def environ_of(proxy: FaultyProxy) -> dict[str, str]:
    """The variables by which a task reaches the store."""
    return {"AWS_ENDPOINT_URL": proxy.url, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
