"""Objects as YAML that a person reads and kubectl applies: no anchors, texts of several lines as blocks. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import yaml

from dtj.api.json import JsonObject


def as_yaml(documents: Iterable[JsonObject]) -> str:
    """The documents, with ``---`` between them."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        """Pods share their parts; each is written out where it stands."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)
