"""A stand-in for Debian's slim base image, made of Debian's packages: for where no registry can be reached.

The same release, minimal variant, and what the slim images lack taken away: manuals, locales, documents but copyright.
"""

import hashlib
from pathlib import Path

from testbed.binaries import Report
from testbed.buildah import Buildah, contained, run

RELEASE = "bookworm"
MIRROR = "http://deb.debian.org"
SOURCES = f"""\
deb {MIRROR}/debian {RELEASE} main
deb {MIRROR}/debian {RELEASE}-updates main
deb {MIRROR}/debian-security {RELEASE}-security main
"""
# Packages that are installed later bring none of it either; nor are they written with a sync for each file.
DPKG_OPTIONS = """\
force-unsafe-io
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/groff/*
path-exclude /usr/share/info/*
path-exclude /usr/share/lintian/*
path-exclude /usr/share/linda/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/man/*
"""
EMPTIED = (
    *(f"usr/share/{name}" for name in ("groff", "info", "lintian", "locale", "man")),
    *("var/cache", "var/lib/apt/lists", "var/log", "dev"),
)


def key() -> str:
    """A hash over what the image is made by."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]


def ensure(buildah: Buildah, *, report: Report) -> str:
    """The name of the image, built if it is not in buildah's storage. `Unavailable` where it cannot be."""
    name = f"localhost/dtj-base-{RELEASE}:{key()}"
    if name in buildah.run("images", "--format={{.Name}}:{{.Tag}}").splitlines():
        return name
    report(f"making {name} of Debian packages: a minute, the first time")
    root = buildah.scratch / "root"
    contained("debootstrap", "--variant=minbase", RELEASE, str(root), f"{MIRROR}/debian", scratch=buildah.scratch)
    _slim(root)
    archive = buildah.scratch / "root.tar"
    run("tar", "--create", "--numeric-owner", f"--file={archive}", f"--directory={root}", ".")
    container = buildah.run("from", "scratch").strip()
    buildah.run("add", container, str(archive), "/")
    buildah.run("config", "--cmd=bash", container)
    buildah.run("commit", "--rm", container, name)
    return name


def _slim(root: Path) -> None:
    (root / "etc/apt/sources.list").write_text(SOURCES)
    (root / "etc/dpkg/dpkg.cfg.d/slim").write_text(DPKG_OPTIONS)
    for place in EMPTIED:
        for path in (root / place).rglob("*"):
            if path.is_symlink() or not path.is_dir():
                path.unlink()
    for path in (root / "usr/share/doc").rglob("*"):
        if path.name != "copyright" and (path.is_symlink() or not path.is_dir()):
            path.unlink()
