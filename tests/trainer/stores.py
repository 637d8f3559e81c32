"""Object stores on this machine, each with a proxy in front of it that can answer badly."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from support.faulty_store import FaultyProxy
from trainer.gs_server import gs_contents
from trainer.s3_server import s3_contents


class Contents(Protocol):
    """The objects of a bucket, by a connection to the server itself."""

    address: tuple[str, int]

    def list_keys(self, prefix: str = "") -> list[str]: ...

    def read(self, key: str) -> bytes: ...

    def write(self, key: str, content: bytes) -> None: ...

    def delete(self, key: str) -> None: ...


@dataclass(frozen=True)
class Store:
    """A server with one bucket, and how a task reaches it."""

    scheme: str
    bucket: str
    contents: Contents
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


_KINDS: dict[str, Callable[[str], AbstractContextManager[Contents]]] = {"s3": s3_contents, "gs": gs_contents}
SCHEMES = tuple(_KINDS)


@contextmanager
def store_with_bucket(scheme: str, bucket: str) -> Iterator[Store]:
    """A server that speaks the protocol of the scheme, with an empty bucket."""
    with _KINDS[scheme](bucket) as contents, FaultyProxy(*contents.address).serving() as proxy:
        store = Store(scheme, bucket, contents, proxy)
        yield store
        store.clear()
