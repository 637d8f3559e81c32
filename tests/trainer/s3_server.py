"""A server that speaks the protocol of S3."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from moto.server import ThreadedMotoServer


class S3Contents:
    """The objects of a small bucket."""

    def __init__(self, client: Any, bucket: str, address: tuple[str, int]) -> None:
        self._client, self._bucket, self.address = client, bucket, address

    def list_keys(self, prefix: str = "") -> list[str]:
        found = self._client.list_objects_v2(Bucket=self._bucket, Prefix=prefix)
        return [entry["Key"] for entry in found.get("Contents", ())]

    def read(self, key: str) -> bytes:
        content: bytes = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return content

    def write(self, key: str, content: bytes) -> None:
        self._client.put_object(Bucket=self._bucket, Key=key, Body=content)

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=self._bucket, Key=key)


@contextmanager
def s3_contents(bucket: str) -> Iterator[S3Contents]:
    """A server with this bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client(
        "s3", region_name="us-east-1", endpoint_url=f"http://{host}:{port}",
        aws_access_key_id="id", aws_secret_access_key="secret",
    )  # fmt: skip
    client.create_bucket(Bucket=bucket)
    try:
        yield S3Contents(client, bucket, (host, port))
    finally:
        # The server keeps its buckets in this process.
        client.delete_bucket(Bucket=bucket)
        server.stop()
