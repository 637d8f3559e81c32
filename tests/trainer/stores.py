"""Object stores on this machine, each with a proxy in front of it that can answer badly."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from support.faulty_store import FaultyProxy
from trainer.s3_server import S3Contents, s3_contents

SCHEMES = ("s3", "gs")


@dataclass(frozen=True)
class Store:
    """A server with one bucket, and how a task reaches it."""

    scheme: str
    bucket: str
    contents: S3Contents
    """Its objects, by a connection to the server itself."""
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


@contextmanager
def store_with_bucket(scheme: str, bucket: str) -> Iterator[Store]:
    """A server that speaks the protocol of the scheme, with an empty bucket.

    The XML API of Google Cloud Storage is that of S3 but for the header of a condition, which the proxy translates.
    """
    with s3_contents(bucket) as contents, FaultyProxy(*contents.address).serving() as proxy:
        store = Store(scheme, bucket, contents, proxy)
        yield store
        store.clear()
