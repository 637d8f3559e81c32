"""The program of a kubeconfig that gets credentials, such as ``aws eks get-token``: client-go's exec plugins.

The client library would wait for it without end, keep its words from the user, and go on without credentials.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from typing import Any, Final

from dtj.api.json import fields_of, items_of, objects, text

LIMIT_SECONDS: Final = 180.0
"""How long a plugin may take: some wait for a person who logs in with a browser."""


async def with_credentials(user: dict[str, Any]) -> dict[str, Any]:
    """The user of a kubeconfig with what its plugin gives in place of the plugin.

    What the plugin has to say goes to standard error. Raises ValueError if it gives no credentials.
    """
    if "exec" not in user:
        return user
    plugin = fields_of(user["exec"])
    command, version = text(plugin.get("command")), text(plugin.get("apiVersion"))
    if not command or not version:
        raise ValueError("exec has no command, or no apiVersion")
    interactive = plugin.get("interactiveMode") != "Never" and sys.stdin is not None and sys.stdin.isatty()
    asked = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": interactive}}
    given = {text(each.get("name")): text(each.get("value")) for each in objects(plugin.get("env"))}
    answer = await _output(
        [command, *map(str, items_of(plugin.get("args")))],
        env={**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
        interactive=interactive,
        hint=text(plugin.get("installHint")),
    )
    return {**{key: value for key, value in user.items() if key != "exec"}, **_credentials(command, version, answer)}


async def _output(command: list[str], *, env: dict[str, str], interactive: bool, hint: str) -> bytes:
    # Standard input may be a manifest, which is not for the plugin.
    standard_input = None if interactive else DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(*command, env=env, stdin=standard_input, stdout=PIPE)
    except OSError as error:
        raise ValueError(f"exec: {command[0]} cannot be run: {error.strerror}. {hint}".removesuffix(". ")) from error
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        raise ValueError(f"exec: {command[0]} gave no credentials within {LIMIT_SECONDS:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise ValueError(f"exec: {command[0]} ended with code {process.returncode}")
    return output


def _credentials(command: str, version: str, answer: bytes) -> dict[str, str]:
    """The fields of a user that an ExecCredential stands for."""
    try:
        found = fields_of(json.loads(answer))
    except ValueError as error:
        raise ValueError(f"exec: {command} printed no JSON: {error}") from error
    if found.get("apiVersion") != version:
        raise ValueError(f"exec: {command} speaks {found.get('apiVersion')}, and the kubeconfig asks for {version}")
    status = fields_of(found.get("status"))
    certificate, key = text(status.get("clientCertificateData")), text(status.get("clientKeyData"))
    credentials = {"token": text(status.get("token"))}
    if certificate and key:
        credentials["client-certificate-data"] = base64.b64encode(certificate.encode()).decode()
        credentials["client-key-data"] = base64.b64encode(key.encode()).decode()
    credentials = {name: value for name, value in credentials.items() if value}
    if not credentials:
        raise ValueError(f"exec: {command} printed neither a token nor a certificate with its key")
    return credentials
