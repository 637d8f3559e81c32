"""The address of the API server and our credentials: a service account in the cluster, a kubeconfig elsewhere."""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config
from kubernetes.aio.config.incluster_config import SERVICE_HOST_ENV_NAME, SERVICE_TOKEN_FILENAME
from kubernetes.aio.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger

_NAMESPACE_FILE: Final = Path(SERVICE_TOKEN_FILENAME).with_name("namespace")
_DEFAULT_NAMESPACE: Final = "default"
_MAX_CONTEXTS: Final = 10
_NOBODY: Final = "(no user)"
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
        context = self._context(self._read_kubeconfigs())
        return str(context.get("namespace") or _DEFAULT_NAMESPACE)

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

    def _read_kubeconfigs(self) -> list[dict[str, Any]]:
        paths = self._paths()
        files = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
        readable = [path for path in files if path.exists()]
        if not readable:
            raise ConfigError(f"kubeconfig {paths} does not exist: give one with --kubeconfig or $KUBECONFIG")
        return [_read_kubeconfig(path) for path in readable]

    async def _load_kubeconfig(self, configuration: Configuration) -> None:
        contents = self._read_kubeconfigs()
        context = self._context(contents)
        merged = KubeConfigMerger(self._paths()).config
        if not any(user.value.get("name") == context.get("user") for user in merged.value["users"]):
            # kubectl takes a context without a user, as one behind `kubectl proxy` is; the client library does not.
            nobody = {"name": _NOBODY, "user": {}}
            merged.value["users"].append(ConfigNode("users", nobody, self._paths()))
            for each in merged.value["contexts"]:
                if each.value.get("context") == context:
                    each.value["context"]["user"] = _NOBODY
        try:
            loader = KubeConfigLoader(config_dict=merged, active_context=self._wanted(contents))
            await loader.load_and_set(configuration)
            if configuration.ssl_ca_cert:
                ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        except (TypeError, KeyError, ValueError, AttributeError, OSError) as error:
            # The library trusts the shape of what it reads, and certificates that are none come from OpenSSL.
            words = " ".join(str(error).split())
            raise ConfigError(f"{self.describe()}: cannot be used: {type(error).__name__}: {words}") from error

    def _wanted(self, contents: list[dict[str, Any]]) -> str | None:
        return self.context or next(filter(None, (content.get("current-context") for content in contents)), None)

    def _context(self, contents: list[dict[str, Any]]) -> dict[str, Any]:
        """The context that is asked for, else the current one. Raises ConfigError with the names of those that there
        are, which the client library does not name."""
        entries = [entry for content in contents for entry in content.get("contexts") or ()]
        known = {
            str(entry["name"]): entry["context"]
            for entry in reversed(entries)
            if isinstance(entry, dict) and "name" in entry and isinstance(entry.get("context"), dict)
        }
        wanted = self._wanted(contents)
        if wanted in known:
            return dict(known[wanted])
        names = sorted(known)
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
