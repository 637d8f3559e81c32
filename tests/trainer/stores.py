"""Object stores on this machine, each with a proxy in front of it that can answer badly.

One server speaks the protocol of S3, the other the JSON API of Google Cloud Storage.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import HTTPServer
from threading import Thread
from typing import Any

import boto3
from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import objects
from gcp_storage_emulator.handlers.buckets import create_bucket
from gcp_storage_emulator.server import HANDLERS, RequestHandler
from gcp_storage_emulator.storage import Storage
from google.auth.credentials import AnonymousCredentials
from google.cloud.storage import Client
from moto.server import ThreadedMotoServer

from support.faulty_store import FaultyProxy


class S3Contents:
    """The objects of a small bucket, by a connection to the server itself."""

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


class GsContents:
    """The objects of a small bucket."""

    def __init__(self, client: Client, bucket: str, address: tuple[str, int]) -> None:
        self._bucket, self.address = client.bucket(bucket), address

    def list_keys(self, prefix: str = "") -> list[str]:
        return sorted(blob.name for blob in self._bucket.list_blobs(prefix=prefix))

    def read(self, key: str) -> bytes:
        content: bytes = self._bucket.blob(key).download_as_bytes()
        return content

    def write(self, key: str, content: bytes) -> None:
        self._bucket.blob(key).upload_from_string(content)

    def delete(self, key: str) -> None:
        self._bucket.blob(key).delete()


@contextmanager
def gs_contents(bucket: str) -> Iterator[GsContents]:
    """A server with this bucket."""
    for name in ("api", "api.object", "gcp_storage_emulator"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    storage = Storage(use_memory_fs=True)
    create_bucket(bucket, storage)
    # One request at a time: its storage has no lock.
    server = HTTPServer(("127.0.0.1", 0), partial(RequestHandler, storage))
    address = "127.0.0.1", server.server_address[1]
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    endpoint = {"api_endpoint": f"http://{address[0]}:{address[1]}"}
    client = Client(project="test", credentials=AnonymousCredentials(), client_options=endpoint)
    try:
        yield GsContents(client, bucket, address)
    finally:
        client.close()
        server.shutdown()
        server.server_close()


def _insert(request: Any, response: Any, storage: Storage) -> None:
    """The emulator ignores the condition that there is no object of this name."""
    if request.query.get("ifGenerationMatch") == ["0"]:
        try:
            storage.get_file_obj(request.params["bucket_name"], request.data["meta"]["name"])
        except NotFound:
            pass
        else:
            response.status = HTTPStatus.PRECONDITION_FAILED
            return
    objects.insert(request, response, storage)


def _download(request: Any, response: Any, storage: Storage, *args: Any, **kwargs: Any) -> None:
    """The emulator leaves out which generation it answers with."""
    with suppress(NotFound):
        found = storage.get_file_obj(request.params["bucket_name"], request.params["object_id"])
        response["X-Goog-Generation"] = found["generation"]
    objects.download(request, response, storage, *args, **kwargs)


for _, methods in HANDLERS:
    if methods.get("POST") is objects.insert:
        methods["POST"] = _insert
    if methods.get("GET") is objects.download:
        methods["GET"] = _download


@dataclass(frozen=True)
class Store:
    """A server with one bucket, and how a task reaches it."""

    scheme: str
    bucket: str
    contents: S3Contents | GsContents
    proxy: FaultyProxy

    @property
    def environ(self) -> dict[str, str]:
        """The variables by which a task reaches the proxy."""
        if self.scheme == "gs":
            return {"STORAGE_EMULATOR_HOST": self.proxy.url}
        return {"AWS_ENDPOINT_URL": self.proxy.url, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}

    def url(self, key: str) -> str:
        return f"{self.scheme}://{self.bucket}/{key}"

    def clear(self) -> None:
        """Removes all objects and planned faults."""
        self.proxy.recover()
        for key in self.contents.list_keys():
            self.contents.delete(key)


_KINDS: dict[str, Callable[[str], AbstractContextManager[S3Contents | GsContents]]] = {
    "s3": s3_contents,
    "gs": gs_contents,
}
SCHEMES = tuple(_KINDS)


@contextmanager
def store_with_bucket(scheme: str, bucket: str) -> Iterator[Store]:
    """A server that speaks the protocol of the scheme, with an empty bucket."""
    with _KINDS[scheme](bucket) as contents, FaultyProxy(*contents.address).serving() as proxy:
        store = Store(scheme, bucket, contents, proxy)
        yield store
        store.clear()
