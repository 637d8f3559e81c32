"""Jobs of a cluster from Python: :class:`AsyncClient`.

A room of its own above all that decides and runs: what it offers, the command line offers too, since that uses it.
"""

from dtj.client.aio import AsyncClient
from dtj.client.logs import LogLine, LogNote, LogSelection, NothingToRead
from dtj.kube.config import ConfigError
from dtj.kube.errors import ApiError

__all__ = ["ApiError", "AsyncClient", "ConfigError", "LogLine", "LogNote", "LogSelection", "NothingToRead"]
