"""A hook of mkdocs: what the documents link to outside docs/, such as an example, comes with the site.

On a code host the links lead to the files themselves; here a copy lies under ``source/``. A link to nothing is left as
it is, so that ``mkdocs build --strict`` complains of it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = "source"

_OUTSIDE: Final = re.compile(r"\]\(((?:\.\./)+)([^)#]+)(#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> None:
    """Name the version on each page."""
    version = re.search(
        r'^__version__ = "(.*)"$', (ROOT / "operator" / "dtj" / "__init__.py").read_text(), re.MULTILINE
    )
    assert version is not None
    config.copyright = f"dtj {version[1]}"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that are linked to."""
    wanted = {target for page in files.documentation_pages() for target in _targets(page)}
    for target in sorted(wanted):
        path = ROOT / target
        # As text: browsers show it instead of keeping it, and mkdocs makes no page of a README.
        files.append(File.generated(config, f"{FOLDER}/{target}.txt", content=path.read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links lead to the copies."""
    depth = page.file.src_uri.count("/")

    def moved(link: re.Match[str]) -> str:
        target = _target(depth, link)
        return f"]({'../' * depth}{FOLDER}/{target}.txt)" if target is not None else link[0]

    return _OUTSIDE.sub(moved, markdown)


def _targets(page: File) -> set[str]:
    depth = page.src_uri.count("/")
    found = (_target(depth, link) for link in _OUTSIDE.finditer(page.content_string))
    return {target for target in found if target is not None}


def _target(depth: int, link: re.Match[str]) -> str | None:
    """The file that a link from so deep below docs/ leads to; None where it stays within, or leads to no file."""
    if link[1].count("../") != depth + 1:
        return None
    return link[2] if (ROOT / link[2]).is_file() else None
