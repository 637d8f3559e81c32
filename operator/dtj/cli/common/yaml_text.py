"""Objects as YAML that a person reads and kubectl applies: no anchors, texts of several lines as blocks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import yaml

from dtj.api.printable import printable


def as_yaml(documents: Iterable[Mapping[str, object]]) -> str:
    """The documents, with ``---`` between them. What is not printable is escaped, so that nothing of it is lost."""
    return yaml.dump_all(map(dict, documents), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        """Pods share their parts; each is written out where it stands."""
        return True

    def write_double_quoted(self, text: str, split: bool = True) -> None:
        """In ASCII: PyYAML would write characters that turn the direction of writing around as they are."""
        unicode, self.allow_unicode = self.allow_unicode, False
        super().write_double_quoted(text, split)
        self.allow_unicode = unicode


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = '"' if printable(value) != value else "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)
