"""A small JSON client over mutual TLS, for the testbed's own calls to the API server and etcd.

It goes straight to the loopback address: a proxy in the environment is for the outside world.
"""

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

from testbed.errors import ApiError
from testbed.pki import KeyPair

Json = dict[str, Any]


class RestClient:
    """Calls one server with one identity. A connection per request, so it may be shared between threads."""

    def __init__(self, port: int, *, authority: Path, identity: KeyPair) -> None:
        self._port = port
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._tls.load_cert_chain(str(identity.certificate), str(identity.key))

    def request(
        self, method: str, path: str, body: Json | None = None, *, content_type: str = "application/json"
    ) -> Json:
        """The decoded answer. Raises `ApiError` from status 400 on, OSError where nobody answers."""
        text = self.text(method, path, body, content_type=content_type)
        answer: Json = json.loads(text) if text else {}
        return answer

    def text(self, method: str, path: str, body: Json | None = None, *, content_type: str = "application/json") -> str:
        """As `request`, with the answer as text: for health checks and for watches, which answer line by line."""
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._tls, timeout=30)
        try:
            payload = None if body is None else json.dumps(body)
            headers = {"Content-Type": content_type, "Accept": "application/json", "User-Agent": "dtj-testbed"}
            connection.request(method, path, payload, headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status >= 400:
            raise _error(response.status, text)
        return text


def _error(code: int, text: str) -> ApiError:
    try:
        status = json.loads(text)
    except ValueError:
        status = {}
    if not isinstance(status, dict):
        status = {}
    return ApiError(code=code, reason=status.get("reason", ""), message=status.get("message", text))
