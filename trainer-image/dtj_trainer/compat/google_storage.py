"""What the trainer needs of the client of Google Cloud Storage and the client does not promise."""

from typing import Any

from dtj_trainer.compat import private

_LIBRARY = "google-cloud-storage"


def session_of(client: Any) -> Any:
    """The `requests.Session` by which a `google.cloud.storage.Client` sends all its requests.

    Raises:
        UsageError: this version keeps it elsewhere.
    """
    return private(client, "_http", library=_LIBRARY)
