"""`python -m testbed build|up|down|status`: a control plane to try things on, for as long as you like."""

import argparse
import sys

from testbed import binaries, runs
from testbed.binaries import to_stderr
from testbed.control_plane import ControlPlane
from testbed.errors import KubectlError, StartError, Unavailable
from testbed.processes import stat


def main() -> int:
    """Run one command. Exit status: 0 done or running, 1 not running or failed."""
    parser = argparse.ArgumentParser(prog="testbed", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="build|up|down|status")
    for command in (build, up, down, status):
        commands.add_parser(command.__name__, help=command.__doc__).set_defaults(command=command)
    chosen = parser.parse_args().command
    try:
        return int(chosen())
    except (KubectlError, StartError, Unavailable) as error:
        to_stderr(str(error))
        return 1


def build() -> int:
    """build the binaries if they are not in the cache"""
    binaries.ensure()
    return 0


def up() -> int:
    """start a control plane unless it runs, and apply the project's CRDs; it stays until `down`"""
    run = runs.root() / runs.STANDING
    built = binaries.ensure()
    with runs.launching():
        if run.exists() and not ControlPlane(run, binaries=built).running():
            to_stderr("clearing away what is left of a control plane that died")
            runs.remove(run)
        if not run.exists():
            ControlPlane.launch(runs.STANDING, owner=0, binaries=built)
        ControlPlane(run, binaries=built).install_crds()
    return status()


def down() -> int:
    """stop the control plane and delete its data"""
    with runs.launching():
        runs.remove(runs.root() / runs.STANDING)
    return 0


def status() -> int:
    """print what runs, and how to use it"""
    run = runs.root() / runs.STANDING
    if not run.exists():
        print("not running")
        return 1
    plane = ControlPlane(run, binaries={name: binaries.path_of(name) for name in binaries.CONTROL_PLANE})
    for process in plane.processes:
        pids = process.pids
        memory = sum(known.rss_bytes for pid in pids if (known := stat(pid)))
        print(f"{process.name:24} {f'pid {pids[-1]}, {memory / 2**20:.0f} MiB' if pids else 'dead'}")
    print(f"{'server':24} {plane.url}")
    print(f"{'kubectl':24} {plane.binaries['kubectl']}")
    print(f"{'audit log':24} {plane.audit.path}")
    print(f"export KUBECONFIG={plane.kubeconfig}")
    return 0 if plane.running() else 1


if __name__ == "__main__":
    sys.exit(main())
