"""A small JSON client, for the testbed's own calls to the API server and etcd.

It goes straight to an address of this machine: a proxy in the environment is for the outside world.
"""

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

from patience import PATIENCE_SECONDS
from testbed.errors import ApiError
from testbed.pki import KeyPair

Json = dict[str, Any]


def content_type(method: str) -> str:
    """What a request sends: a PATCH is a merge patch."""
    return f"application/{'merge-patch+json' if method == 'PATCH' else 'json'}"


def mutual_tls(authority: Path, *, identity: KeyPair) -> ssl.SSLContext:
    """Trust servers of this authority alone, and be known to them as `identity`."""
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(str(identity.certificate), str(identity.key))
    return context


class RestClient:
    """Calls one server, with TLS unless `tls` is None. A connection per request, so threads may share it.

    With `lasting`, all requests share one connection: much cheaper, for one thread at a time and a server that lives.
    """

    def __init__(
        self, port: int, *, address: str = "127.0.0.1", tls: ssl.SSLContext | None, lasting: bool = False
    ) -> None:
        self._server = (address, port)
        self._tls = tls
        self._lasting = self._connect() if lasting else None

    def close(self) -> None:
        """Close the lasting connection, if there is one; the next request opens it again."""
        if self._lasting is not None:
            self._lasting.close()

    def request(self, method: str, path: str, body: Json | None = None) -> Json:
        """The decoded answer. Raises `ApiError` from status 400 on, OSError where nobody answers."""
        text = self.text(method, path, body)
        answer: Json = json.loads(text) if text else {}
        return answer

    def find(self, path: str) -> Json | None:
        """An object; None where there is none."""
        try:
            return self.request("GET", path)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def text(self, method: str, path: str, body: Json | bytes | None = None) -> str:
        """As `request`, with the answer as text: for health checks and for watches, which answer line by line.

        A body may be JSON that no dictionary can hold.
        """
        connection = self._lasting or self._connect()
        try:
            payload = body if body is None or isinstance(body, bytes) else json.dumps(body)
            headers = {"Content-Type": content_type(method), "Accept": "application/json", "User-Agent": "dtj-testbed"}
            connection.request(method, path, payload, headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            if connection is not self._lasting:
                connection.close()
        if response.status >= 400:
            raise _error(response.status, text)
        return text

    def is_ready(self) -> bool:
        """Whether the server answers, and says that it is ready (`/readyz`)."""
        try:
            return self.text("GET", "/readyz") == "ok"
        except (ApiError, OSError):
            return False

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(*self._server, timeout=PATIENCE_SECONDS)
        return http.client.HTTPSConnection(*self._server, context=self._tls, timeout=PATIENCE_SECONDS)


def _error(code: int, text: str) -> ApiError:
    try:
        status = json.loads(text)
    except ValueError:
        status = {}
    if not isinstance(status, dict):
        status = {}
    return ApiError(code=code, reason=status.get("reason", ""), message=status.get("message", text))
