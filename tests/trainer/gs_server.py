"""A server that speaks the JSON API of Google Cloud Storage."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import HTTPServer
from threading import Thread
from typing import Any

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import objects
from gcp_storage_emulator.handlers.buckets import create_bucket
from gcp_storage_emulator.server import HANDLERS, RequestHandler
from gcp_storage_emulator.storage import Storage
from google.auth.credentials import AnonymousCredentials
from google.cloud.storage import Client


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


for _, methods in HANDLERS:
    if methods.get("POST") is objects.insert:
        methods["POST"] = _insert
