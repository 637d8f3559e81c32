"""The control groups of a run: one group named after it in every hierarchy, below which its pods' groups lie.

The kernel keeps them outside of all namespaces, so they are what is to be removed when a machine has ended.
"""

import hashlib
from functools import partial
from pathlib import Path

from testbed.processes import wait_until

CGROUPS = Path("/sys/fs/cgroup")


def name_of(run: Path) -> str:
    """The name of a run's group, which no run in another directory has."""
    return f"dtj-testbed-{run.name}-{hashlib.sha256(str(run).encode()).hexdigest()[:8]}"


def create(run: Path) -> None:
    """Make a run's group, in the one hierarchy of version 2 or in each of version 1."""
    for hierarchy in _hierarchies():
        (hierarchy / name_of(run)).mkdir(exist_ok=True)


def remove(run: Path) -> None:
    """Remove a run's group with all groups below it, where it has one. Its processes must have ended."""
    for group in groups(run):
        wait_until(partial(_removed, group), what=f"the end of all processes in {group}")


def groups(run: Path) -> list[Path]:
    """All groups of a run, those below others first."""
    found = [path for hierarchy in _hierarchies() for path in (hierarchy / name_of(run)).glob("**/")]
    return sorted(found, key=lambda path: -len(path.parts))


def _hierarchies() -> list[Path]:
    """The mount points: of version 2, or of version 1's controllers."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path.parent for path in CGROUPS.glob("*/cgroup.procs") if not path.parent.is_symlink()]


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        # A process that has ended counts until its parent takes notice.
        return not group.exists()
    return True
