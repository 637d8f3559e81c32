"""`python -m testbed build|up|down|status|install|images`: a cluster to try things on, for as long as you like.

With --node it has a real node, and fake ones with accelerators; that needs root.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from testbed import binaries, images, oci, packages, runs
from testbed.cache import report
from testbed.control_plane import ControlPlane
from testbed.errors import KubectlError, StartError, Unavailable
from testbed.node_cluster import NodeCluster
from testbed.processes import stat


@dataclass(frozen=True)
class Standing:
    """A cluster that stands until `down`: the name of its run, its class, and the programs and packages it needs."""

    run: str
    kind: type[ControlPlane]
    programs: tuple[str, ...]
    packages: Mapping[str, str]

    def cluster(self) -> ControlPlane:
        """The cluster, which need not run."""
        return self.kind(runs.root() / self.run, binaries={name: binaries.path_of(name) for name in self.programs})

    def provide(self) -> None:
        """Build and install what it needs."""
        packages.ensure(self.packages)
        binaries.ensure(self.programs)


CHART = Path(__file__).parents[2] / "charts" / "dtj"
REGISTRY = "registry.example"
"""Where the chart and the examples say that the images are."""

BARE = Standing("standing", ControlPlane, (*binaries.CONTROL_PLANE, "helm"), {})
NEIGHBOURS = Standing("", ControlPlane, binaries.NEIGHBOURS, {})
AROUND_TFJOBS = Standing("", ControlPlane, binaries.AROUND_TFJOBS, {})
VERSIONS = Standing("", ControlPlane, binaries.ON_DEMAND, {})
WITH_NODE = Standing("standing-node", NodeCluster, (*binaries.CONTROL_PLANE, "helm", *binaries.NODE), packages.NODE)


def main() -> int:
    """Run one command. Exit status: 0 done or running, 1 not running or failed."""
    parser = argparse.ArgumentParser(prog="testbed", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="build|up|down|status|install|images")
    for command in (build, up, down, status):
        subparser = commands.add_parser(command.__name__, help=command.__doc__)
        subparser.add_argument("--node", action="store_const", const=WITH_NODE, default=BARE, help="one with nodes")
        if command is build:
            what = "the components of other projects"
            subparser.add_argument("--neighbours", action="store_const", dest="node", const=NEIGHBOURS, help=what)
            what = "what serves and uses TFJobs elsewhere"
            subparser.add_argument("--tfjob", action="store_const", dest="node", const=AROUND_TFJOBS, help=what)
            every = "all versions of Kubernetes that tests know"
            subparser.add_argument("--versions", action="store_const", dest="node", const=VERSIONS, help=every)
        subparser.set_defaults(run=lambda given, command=command: command(given.node))
    subparser = commands.add_parser("install", help=install.__doc__)
    subparser.set_defaults(run=lambda _: install())
    subparser = commands.add_parser("images", help="build the images, print their names and sizes")
    subparser.add_argument("names", nargs="*", default=[*images.RECIPES], help="which of them (%(default)s)")
    subparser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE", help="for the Dockerfile")
    subparser.add_argument("--save", type=Path, metavar="DIR", help="write them to this folder, too, as OCI archives")
    subparser.set_defaults(run=lambda given: build_images(given.names, given.build_arg, given.save))
    given = parser.parse_args()
    try:
        return int(given.run(given))
    except (KubectlError, StartError, Unavailable) as error:
        report(str(error))
        return 1


def build(standing: Standing) -> int:
    """build and install what is missing"""
    standing.provide()
    return 0


def up(standing: Standing) -> int:
    """start a cluster unless it runs, and apply the project's CRDs; it stays until `down`"""
    standing.provide()
    cluster = standing.cluster()
    with runs.launching():
        if cluster.run.exists() and not cluster.running():
            report("clearing away what is left of a cluster that died")
            runs.remove(cluster.run)
        if not cluster.run.exists():
            standing.kind.launch(standing.run, owner=0, binaries=cluster.binaries)
        cluster.install_crds()
    return status(standing)


def down(standing: Standing) -> int:
    """stop the cluster and delete its data"""
    with runs.launching():
        runs.remove(runs.root() / standing.run)
    return 0


def status(standing: Standing) -> int:
    """print what runs, and how to use it"""
    cluster = standing.cluster()
    if not cluster.run.exists():
        print("not running")
        return 1
    for process in cluster.processes:
        pids = process.pids
        memory = sum(known.rss_bytes for pid in pids if (known := stat(pid)))
        print(f"{process.name:24} {f'pid {pids[-1]}, {memory / 2**20:.0f} MiB' if pids else 'dead'}")
    print(f"{'server':24} {cluster.url}")
    print(f"{'kubectl':24} {cluster.kubectl_path}")
    print(f"{'audit log':24} {cluster.audit.path}")
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    print(f"export PATH={cluster.kubectl_path.parent}:$PATH")
    return 0 if cluster.running() else 1


def install() -> int:
    """build both images, put them onto the node of the standing cluster, and install the operator by helm"""
    cluster = WITH_NODE.cluster()
    if not isinstance(cluster, NodeCluster) or not cluster.running():
        raise Unavailable("no cluster with a node runs: start it by `make cluster`")
    helm = binaries.ensure(("helm",))["helm"]
    for recipe in images.RECIPES.values():
        image = images.build(recipe, docker=False)
        report(f"putting {image.name} onto the node")
        cluster.load_image(image)
        cluster.tag_image(image, f"{REGISTRY}/dtj-{recipe.name}:{_version()}")
    # The CRDs are there: `up` has applied them.
    options = ("--namespace=dtj-system", "--create-namespace", "--set=crds.enabled=false", "--wait", "--timeout=120s")
    command = [str(helm), "upgrade", "--install", "dtj", str(CHART), f"--kubeconfig={cluster.kubeconfig}", *options]
    return subprocess.run(command, check=False).returncode


def build_images(names: Sequence[str], build_arguments: Sequence[str], save: Path | None) -> int:
    """Build images, in Docker where its engine runs, print their names, unpacked sizes and where they are."""
    arguments = dict(argument.split("=", 1) for argument in build_arguments)
    docker = images.docker_works()
    for name in names:
        image = images.build(replace(images.RECIPES[name], arguments=arguments), docker=docker)
        print(f"{image.name:40} {images.size_of(image) / 1e6:6.0f} MB  {image.archive or 'in Docker'}")
        if save is not None:
            with images.docker_archive(image) as archive:
                stem = f"dtj-{name}"
                oci.write(archive, save / f"{stem}-{_version()}.oci.tar", name=f"{REGISTRY}/{stem}:{_version()}")
    return 0


def _version() -> str:
    """The version of the chart, which is that of the images."""
    return str(yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"])


if __name__ == "__main__":
    sys.exit(main())
