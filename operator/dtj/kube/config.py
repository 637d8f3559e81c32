"""The address of the API server and our credentials: a service account in the cluster, a kubeconfig elsewhere."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import (
    ConfigException,
    list_kube_config_contexts,
    load_incluster_config,
    load_kube_config,
)
from kubernetes.aio.config.incluster_config import SERVICE_HOST_ENV_NAME, SERVICE_TOKEN_FILENAME

_NAMESPACE_FILE: Final = Path(SERVICE_TOKEN_FILENAME).with_name("namespace")
_DEFAULT_NAMESPACE: Final = "default"
_MAX_CONTEXTS: Final = 10
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class ConfigError(Exception):
    """No usable configuration; the message says which file or field, and what to do."""


@dataclass(frozen=True, slots=True)
class ConnectionSource:
    """The connection as the user gave it. Nothing given means: the cluster we run in, else the kubeconfig
    of ``$KUBECONFIG``, else ``~/.kube/config``."""

    kubeconfig: str | None = None
    context: str | None = None

    async def load(self) -> Configuration:
        """Read the configuration again, with fresh tokens. Raises ConfigError."""
        configuration = Configuration()
        try:
            if self._in_cluster():
                load_incluster_config(client_configuration=configuration)
            else:
                await self._load_kubeconfig(configuration)
        except ConfigException as error:
            raise ConfigError(f"{self.describe()}: {error}") from error
        if urlsplit(configuration.host).hostname in _LOOPBACK:
            # A proxy of the environment cannot reach this machine's own loopback; kubectl makes the same exception.
            configuration.client_session_kwargs = {"trust_env": False}
        return configuration

    def namespace(self) -> str:
        """The namespace that the source names: the pod's own, or that of the kubeconfig's context; else ``default``.

        Raises ConfigError.
        """
        if self._in_cluster():
            with suppress(OSError):
                return _NAMESPACE_FILE.read_text(encoding="utf-8").strip() or _DEFAULT_NAMESPACE
            return _DEFAULT_NAMESPACE
        try:
            contexts, current = list_kube_config_contexts(self._paths())
        except ConfigException as error:
            raise ConfigError(f"{self.describe()}: {error}") from error
        chosen = next((c for c in contexts if c["name"] == self.context), current) if self.context else current
        return str(chosen["context"].get("namespace") or _DEFAULT_NAMESPACE)

    def describe(self) -> str:
        """The source in words, for messages."""
        if self._in_cluster():
            return "service account of this pod"
        return f"kubeconfig {self._paths()}"

    def _in_cluster(self) -> bool:
        given = self.kubeconfig or self.context or os.environ.get("KUBECONFIG")
        return not given and SERVICE_HOST_ENV_NAME in os.environ and Path(SERVICE_TOKEN_FILENAME).exists()

    def _paths(self) -> str:
        return self.kubeconfig or os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())

    async def _load_kubeconfig(self, configuration: Configuration) -> None:
        paths = self._paths()
        files = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
        readable = [path for path in files if path.exists()]
        if not readable:
            raise ConfigError(f"kubeconfig {paths} does not exist: give one with --kubeconfig or $KUBECONFIG")
        self._check_context([_read_kubeconfig(path) for path in readable])
        await load_kube_config(
            config_file=paths, context=self.context, client_configuration=configuration, persist_config=False
        )

    def _check_context(self, contents: list[dict[str, Any]]) -> None:
        """Name the contexts that there are, which the client library does not."""
        entries = [entry for content in contents for entry in content.get("contexts") or ()]
        names = sorted({str(entry["name"]) for entry in entries if isinstance(entry, dict) and "name" in entry})
        wanted = self.context or next(filter(None, (content.get("current-context") for content in contents)), None)
        if wanted in names:
            return
        shown = ", ".join(names[:_MAX_CONTEXTS]) + (", …" if len(names) > _MAX_CONTEXTS else "")
        remedy = f"choose one with --context: {shown}" if names else "it has none"
        problem = f'there is no context "{wanted}"' if wanted else "current-context is not set"
        raise ConfigError(f"{self.describe()}: {problem}: {remedy}")


def _read_kubeconfig(path: Path) -> dict[str, Any]:
    """Its content. Raises ConfigError for what the client library would answer with a TypeError from its depths."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise ConfigError(f"kubeconfig {path}: {line}not YAML: {error.problem}") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"kubeconfig {path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or not isinstance(content.get("clusters"), list):
        raise ConfigError(f"kubeconfig {path} is not a kubeconfig: it has no list of clusters")
    return content
