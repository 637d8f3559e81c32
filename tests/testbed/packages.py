"""The Debian packages that a node and image builds need: installed by apt where they are missing."""

import os
import shutil
from collections.abc import Mapping

from testbed.buildah import run
from testbed.cache import cache_root, locked, report
from testbed.errors import Unavailable

# What is looked for, and the package that brings it.
NODE: Mapping[str, str] = {
    "/usr/bin/containerd": "containerd",
    "/usr/sbin/runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "/usr/sbin/iptables": "iptables",
    "/usr/sbin/conntrack": "conntrack",
    "/usr/bin/socat": "socat",
    "/usr/share/doc/busybox-static/copyright": "busybox-static",
    "/usr/sbin/ip": "iproute2",
    "/usr/bin/nsenter": "util-linux",
}
IMAGES: Mapping[str, str] = {
    "/usr/sbin/debootstrap": "debootstrap",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
    "/usr/bin/buildah": "buildah",
    "/usr/bin/unshare": "util-linux",
}


def ensure(files: Mapping[str, str]) -> None:
    """Install the packages of those `files` that this machine lacks.

    Raises `Unavailable` where that needs another user than root, another system than Debian, or fails.
    """
    if not files:
        return
    if os.geteuid() != 0:
        raise Unavailable("nodes and images need root")
    with locked(cache_root() / "packages.lock"):
        missing = sorted({package for file, package in files.items() if not os.path.exists(file)})
        if not missing:
            return
        if shutil.which("apt-get") is None:
            raise Unavailable(f"there is no apt-get to install {', '.join(missing)} with")
        report(f"installing {', '.join(missing)}")
        _apt("update")
        _apt("install", "--yes", "--no-install-recommends", *missing)


def _apt(*arguments: str) -> None:
    run("apt-get", "--quiet", "--quiet", *arguments, DEBIAN_FRONTEND="noninteractive")
