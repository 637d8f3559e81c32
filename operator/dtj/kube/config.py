"""The address of the API server and our credentials: a service account in the cluster, a kubeconfig elsewhere."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import load_incluster_config, load_kube_config_from_dict
from kubernetes.aio.config.incluster_config import SERVICE_HOST_ENV_NAME, SERVICE_TOKEN_FILENAME

from dtj.kube.credential_plugin import with_credentials

_NAMESPACE_FILE: Final = Path(SERVICE_TOKEN_FILENAME).with_name("namespace")
_DEFAULT_NAMESPACE: Final = "default"
_MAX_CONTEXTS: Final = 10
_NO_KUBECONFIG: Final = "kubeconfig {} is not a kubeconfig: it has no list of clusters"
_FILES: Final = frozenset({"certificate-authority", "client-certificate", "client-key", "tokenFile"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class ConfigError(Exception):
    """No usable configuration; the message says which file or field, and what to do."""


@dataclass(frozen=True, slots=True)
class ConnectionSource:
    """The connection as the user gave it. Nothing given means, as with kubectl: the kubeconfig of ``$KUBECONFIG``, else
    ``~/.kube/config``, and where there is none, the cluster we run in."""

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
            _check_usable(configuration)
        except ConfigError:
            raise
        except Exception as error:  # the client library answers a field of another kind with whatever Python raises
            words = " ".join(str(error).split()) or type(error).__name__
            raise ConfigError(f"{self.describe()}: cannot be used: {words}") from error
        # Where it may, aiohttp looks for a proxy and for ~/.netrc in threads, for each call: twice the cost of a call.
        configuration.client_session_kwargs = {"trust_env": _has_proxy(configuration.host)}
        return configuration

    def namespace(self) -> str:
        """The namespace that the source names: the pod's own, or that of the kubeconfig's context; else ``default``.

        Raises ConfigError.
        """
        if self._in_cluster():
            with suppress(OSError):
                return _NAMESPACE_FILE.read_text(encoding="utf-8").strip() or _DEFAULT_NAMESPACE
            return _DEFAULT_NAMESPACE
        return str(self._context(self._read()).get("namespace") or _DEFAULT_NAMESPACE)

    def describe(self) -> str:
        """The source in words, for messages."""
        if self._in_cluster():
            return "service account of this pod"
        return f"kubeconfig {self._paths()}"

    def _in_cluster(self) -> bool:
        # As kubectl does: a pod's own account only where there is no kubeconfig.
        given = self.kubeconfig or self.context or os.environ.get("KUBECONFIG") or os.path.exists(self._paths())
        return not given and SERVICE_HOST_ENV_NAME in os.environ and Path(SERVICE_TOKEN_FILENAME).exists()

    def _paths(self) -> str:
        return self.kubeconfig or os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")

    def _read(self) -> list[_File]:
        paths = self._paths()
        files = [Path(os.path.expanduser(path)) for path in paths.split(os.pathsep) if path]
        found = [_File(path, _read_kubeconfig(path)) for path in files if path.exists()]
        if not found:
            raise ConfigError(f"kubeconfig {paths} does not exist: give one with --kubeconfig or $KUBECONFIG")
        if not any(isinstance(file.content.get("clusters"), list) for file in found):
            raise ConfigError(_NO_KUBECONFIG.format(paths))
        return found

    async def _load_kubeconfig(self, configuration: Configuration) -> None:
        """Give the client library the one cluster and user that the context names, as kubectl reads them: the first
        file wins, what is null or empty is not set, and a context needs no user."""
        files = self._read()
        context = self._context(files)
        cluster = _entry(files, "clusters", context.get("cluster"))
        if cluster is None or not isinstance(cluster.get("server"), str):
            missing = "there is no cluster" if cluster is None else "there is no server of cluster"
            raise ConfigError(f'{self.describe()}: {missing} "{context.get("cluster") or ""}"')
        user = await with_credentials(_entry(files, "users", context.get("user")) or {})
        chosen = {
            "current-context": "chosen",
            "contexts": [{"name": "chosen", "context": {"cluster": "chosen", "user": "chosen"}}],
            "clusters": [{"name": "chosen", "cluster": cluster}],
            "users": [{"name": "chosen", "user": _with_token_of_file(user)}],
        }
        _check_data({**cluster, **user})
        await load_kube_config_from_dict(chosen, client_configuration=configuration)

    def _context(self, files: Sequence[_File]) -> dict[str, Any]:
        """The context that was asked for, or the current one: the client library would not say which there are."""
        wanted = self.context or next(filter(None, (file.content.get("current-context") for file in files)), None)
        found = _entry(files, "contexts", wanted) if wanted else None
        if found is not None:
            return found
        names = sorted({str(entry["name"]) for file in files for entry in file.entries("contexts")})
        shown = ", ".join(names[:_MAX_CONTEXTS]) + (", …" if len(names) > _MAX_CONTEXTS else "")
        remedy = f"choose one with --context: {shown}" if names else "it has none"
        problem = f'there is no context "{wanted}"' if wanted else "current-context is not set"
        raise ConfigError(f"{self.describe()}: {problem}: {remedy}")


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    content: dict[str, Any]

    def entries(self, section: str) -> Iterator[dict[str, Any]]:
        """The named entries of ``clusters``, ``contexts`` or ``users``."""
        listed = self.content.get(section)
        for entry in listed if isinstance(listed, list) else ():
            if isinstance(entry, dict) and "name" in entry:
                yield entry

    def absolute(self, path: object) -> str:
        """A path of this file, which counts from its directory."""
        return os.path.join(os.path.abspath(self.path.parent), str(path))


def _entry(files: Sequence[_File], section: str, name: object) -> dict[str, Any] | None:
    """The fields of the first entry of that name which are set, with absolute paths; None if there is none."""
    for file in files:
        for entry in file.entries(section):
            if str(entry["name"]) != str(name):
                continue
            fields = entry.get(section.removesuffix("s")) or {}
            if not isinstance(fields, dict):
                raise ConfigError(f'kubeconfig {file.path}: {section}: "{name}" is not a mapping')
            found = {str(key): value for key, value in fields.items() if value is not None and value != ""}
            return {key: file.absolute(value) if key in _FILES else value for key, value in found.items()}
    return None


def _with_token_of_file(user: dict[str, Any]) -> dict[str, Any]:
    """The user with the token of ``tokenFile``, whose line break at the end is none of it."""
    if "tokenFile" not in user:
        return user
    return {**user, "token": Path(user["tokenFile"]).read_text(encoding="utf-8").strip()}


def _has_proxy(server: str) -> bool:
    """Whether the environment names a proxy for the server. None can reach this machine's own loopback: kubectl makes
    the same exception."""
    address = urlsplit(server)
    host = address.hostname or ""
    return host not in _LOOPBACK and not proxy_bypass(host) and address.scheme in getproxies()


def _check_data(fields: dict[str, Any]) -> None:
    for key in (key for key in fields if key.endswith("-data")):
        try:
            base64.b64decode(fields[key])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{key} is not base64") from error


def _check_usable(configuration: Configuration) -> None:
    """Raises ValueError for what would be an exception from the depths of the transport."""
    try:
        address = urlsplit(configuration.host)
        usable = address.scheme in {"http", "https"} and bool(address.hostname) and address.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f'server "{configuration.host}" is not an address such as https://example.com:6443')
    if not all(str(key).isprintable() for key in configuration.api_key.values()):
        raise ValueError("the token has a line break, or another character that cannot be sent")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        field = "certificate-authority"
        if configuration.ssl_ca_cert:
            context.load_verify_locations(configuration.ssl_ca_cert)
        field = "client-certificate or client-key"
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file, password="")  # it asks for none
    except OSError as error:
        raise ValueError(f"{field} cannot be read as PEM: {error.strerror or error}") from error


def _read_kubeconfig(path: Path) -> dict[str, Any]:
    """Its content, which may be empty. Raises ConfigError."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise ConfigError(f"kubeconfig {path}: {line}not YAML: {error.problem}") from error
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"kubeconfig {path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict | None):
        raise ConfigError(_NO_KUBECONFIG.format(path))
    return content or {}
