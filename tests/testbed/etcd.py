"""What tests do behind the API server's back, in etcd: make history unreadable, make objects vanish.

Speaks etcd's JSON gateway, in which keys and values are base64.
"""

import base64

from testbed.rest import RestClient


class Etcd:
    """The store of one control plane. Kubernetes keeps an object under `/registry/<resource>/<namespace>/<name>`."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    def ready(self) -> bool:
        """Whether etcd answers and has a leader."""
        try:
            return self._client.request("GET", "/health").get("health") == "true"
        except OSError:
            return False

    def forget_history(self) -> None:
        """Compact all revisions up to a new one: no watch can begin at a resourceVersion that anyone knows."""
        answer = self._client.request("POST", "/v3/kv/put", {"key": _encode("/dtj-testbed/bump"), "value": _encode("")})
        revision = answer["header"]["revision"]
        self._client.request("POST", "/v3/kv/compaction", {"revision": revision, "physical": True})

    def sizes(self, prefix: str) -> dict[str, int]:
        """Bytes of each key's present value, by key, for all keys that begin with `prefix`."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        answer = self._client.request("POST", "/v3/kv/range", {"key": _encode(prefix), "range_end": _encode(end)})
        return {
            base64.b64decode(found["key"]).decode(): len(base64.b64decode(found["value"]))
            for found in answer.get("kvs", [])
        }

    def delete(self, key: str) -> None:
        """Delete one key. Raises KeyError where there is none."""
        answer = self._client.request("POST", "/v3/kv/deleterange", {"key": _encode(key)})
        if answer.get("deleted") != "1":
            raise KeyError(key)


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
