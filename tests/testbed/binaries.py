"""Builds Kubernetes and etcd from the Go module proxy, once, into the cache.

A folder under `go/` is one Go module: its go.mod names what to build (`tool` lines) and pins every dependency. The
cache key is the content of go.mod, go.sum and our own sources, so a changed version is built again and an unchanged one
never is.

With the variable `KUBEBUILDER_ASSETS`, etcd and kube-apiserver come from that folder instead: `setup-envtest` of
sigs.k8s.io/controller-runtime downloads them in seconds. kubectl comes from there too, if the folder has it.
With `DTJ_KUEUE`, the manager of Kueue and its CRDs come from that copy of the module, in which another version was
built.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from testbed.cache import cache_root, locked, report
from testbed.errors import Unavailable
from testbed.toolchain import find_go, required_version

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Module:
    """A folder with a go.mod; `upstream` is the module in it whose version is that of what is built.

    `assets` is a folder of the upstream module that is kept next to the binaries, such as the one of its CRDs.
    """

    folder: Path
    upstream: str
    cold_minutes: int
    assets: str = ""

    @property
    def go_mod(self) -> str:
        """The text of its go.mod."""
        return (self.folder / "go.mod").read_text()

    @property
    def version(self) -> str:
        """The version of what is built, such as "v1.35.4"."""
        return required(self.upstream, go_mod=self.go_mod)

    @property
    def key(self) -> str:
        """Its name in the cache: folder, and a hash over go.mod, go.sum, our sources and the machine's architecture."""
        digest = hashlib.sha256(platform.machine().encode())
        for name in ("go.mod", "go.sum", *sorted(path.name for path in self.folder.glob("*.go"))):
            content = (self.folder / name).read_bytes()
            digest.update(f"\n{name} {len(content)}\n".encode() + content)
        return f"{self.folder.name}-{digest.hexdigest()[:16]}"


@dataclass(frozen=True)
class Program:
    """One binary: the module that it is built in, and its main package."""

    module: Module
    package: str


_GO = Path(__file__).parent / "go"
ETCD = Module(folder=_GO / "etcd", upstream="go.etcd.io/etcd/server/v3", cold_minutes=1)
KUBERNETES = Module(folder=_GO / "kubernetes", upstream="k8s.io/kubernetes", cold_minutes=8)
COREDNS = Module(folder=_GO / "coredns", upstream="github.com/coredns/coredns", cold_minutes=3)
KWOK = Module(folder=_GO / "kwok", upstream="sigs.k8s.io/kwok", cold_minutes=2)
HELM = Module(folder=_GO / "helm", upstream="helm.sh/helm/v4", cold_minutes=2)
KUEUE = Module(folder=_GO / "kueue", upstream="sigs.k8s.io/kueue", cold_minutes=6, assets="config/components/crd/bases")
WAITERS = Module(folder=_GO / "waiters", upstream="sigs.k8s.io/cli-utils", cold_minutes=1)
KUBE_SCORE = Module(folder=_GO / "kube-score", upstream="github.com/zegl/kube-score", cold_minutes=1)
KREW = Module(folder=_GO / "krew", upstream="sigs.k8s.io/krew", cold_minutes=1)
OPERATOR_VERIFY = Module(folder=_GO / "operator-verify", upstream="github.com/operator-framework/api", cold_minutes=3)
ACTIONLINT = Module(folder=_GO / "actionlint", upstream="github.com/rhysd/actionlint", cold_minutes=1)

SCHEDULER_PLUGINS = Module(
    folder=_GO / "scheduler-plugins",
    upstream="sigs.k8s.io/scheduler-plugins",
    cold_minutes=6,
    assets="config/crd/bases",
)
TRAINING_OPERATOR = Module(
    folder=_GO / "training-operator",
    upstream="github.com/kubeflow/training-operator",
    cold_minutes=2,
    assets="manifests/base/crds",
)
KATIB = Module(folder=_GO / "katib", upstream="github.com/kubeflow/katib", cold_minutes=2)
JOBSET = Module(
    folder=_GO / "jobset", upstream="sigs.k8s.io/jobset", cold_minutes=2, assets="config/components/crd/bases"
)
OTHER_VERSIONS: Mapping[str, Module] = {
    minor: Module(folder=_GO / f"kubernetes-{minor}", upstream="k8s.io/kubernetes", cold_minutes=8)
    for minor in ("1.30", "1.32", "1.34", "1.36", "1.37")
}
"""The versions of Kubernetes next to the one that most tests use, by their minor version."""


def of_version(name: str, minor: str) -> str:
    """The name in `PROGRAMS` of a program of Kubernetes in another version."""
    return f"{name}-{minor}"


def _other_versions() -> Iterator[tuple[str, Program]]:
    for minor, module in OTHER_VERSIONS.items():
        for package in re.findall(r"^\t(k8s\.io/kubernetes/cmd/\S+)$", module.go_mod, re.MULTILINE):
            yield of_version(_executable(package), minor), Program(module, package)


def _executable(package: str) -> str:
    """The name that `go build` gives a main package: its last element that is no major version."""
    return re.sub(r"/v\d+$", "", package).rsplit("/", 1)[-1]


PROGRAMS: Mapping[str, Program] = {
    "etcd": Program(ETCD, "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": Program(KUBERNETES, "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kube-controller-manager": Program(KUBERNETES, "k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kube-scheduler": Program(KUBERNETES, "k8s.io/kubernetes/cmd/kube-scheduler"),
    "kubectl": Program(KUBERNETES, "k8s.io/kubernetes/cmd/kubectl"),
    "kubelet": Program(KUBERNETES, "k8s.io/kubernetes/cmd/kubelet"),
    "kube-proxy": Program(KUBERNETES, "k8s.io/kubernetes/cmd/kube-proxy"),
    "coredns": Program(COREDNS, "github.com/coredns/coredns"),
    "kwok": Program(KWOK, "sigs.k8s.io/kwok/cmd/kwok"),
    "helm": Program(HELM, "helm.sh/helm/v4/cmd/helm"),
    "kueue": Program(KUEUE, "sigs.k8s.io/kueue/cmd/kueue"),
    "waiters": Program(WAITERS, "dtj/tests/testbed/waiters"),
    "kube-score": Program(KUBE_SCORE, "github.com/zegl/kube-score/cmd/kube-score"),
    "krew": Program(KREW, "sigs.k8s.io/krew/cmd/krew"),
    "operator-verify": Program(OPERATOR_VERIFY, "github.com/operator-framework/api/cmd/operator-verify"),
    "actionlint": Program(ACTIONLINT, "github.com/rhysd/actionlint/cmd/actionlint"),
    "scheduler-plugins": Program(SCHEDULER_PLUGINS, "sigs.k8s.io/scheduler-plugins/cmd/scheduler"),
    "training-operator.v1": Program(
        TRAINING_OPERATOR, "github.com/kubeflow/training-operator/cmd/training-operator.v1"
    ),
    "jobset": Program(JOBSET, "sigs.k8s.io/jobset"),
    "katib-controller": Program(KATIB, "github.com/kubeflow/katib/cmd/katib-controller/v1beta1"),
    "katib-database": Program(KATIB, "dtj/tests/testbed/katib"),
    **dict(_other_versions()),
}

# What a control plane needs, what a node needs besides, the real components that the operator is tested with, and what
# the chart is examined and installed with.
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
NODE = ("kubelet", "kube-proxy", "coredns", "kwok")
NEIGHBOURS = (
    "kueue",
    "waiters",
    "scheduler-plugins",
    *(name for name, program in PROGRAMS.items() if program.module in (OTHER_VERSIONS["1.30"], OTHER_VERSIONS["1.37"])),
)
AROUND_TFJOBS = ("training-operator.v1", "kueue", "scheduler-plugins", "katib-controller", "katib-database")
# Minutes each: the matrix of versions runs the oldest and the newest unless it is asked for more.
ON_DEMAND = tuple(name for name, program in PROGRAMS.items() if program.module in OTHER_VERSIONS.values())
CHART_TOOLS = ("helm", "kube-score")

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
KUEUE_VARIABLE = "DTJ_KUEUE"
_ASSETS = ("etcd", "kube-apiserver")
_OPTIONAL_ASSETS = ("kubectl",)


def required(module: str, *, go_mod: str) -> str:
    """The version at which the text of a go.mod file requires `module`. Raises ValueError where it does not."""
    match = re.search(rf"^(?:require|\s)\s*{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if match is None:
        raise ValueError(f"go.mod does not require {module}")
    return match[1]


def path_of(name: str) -> Path:
    """Where the binary `name` is, or will be once built. An asset of `KUBEBUILDER_ASSETS` is never built."""
    folder = os.environ.get(ASSETS_VARIABLE, "")
    if folder and (name in _ASSETS or (name in _OPTIONAL_ASSETS and (Path(folder) / name).exists())):
        return Path(folder) / name
    if name == "kueue" and (other := os.environ.get(KUEUE_VARIABLE, "")):
        return Path(other) / "cmd" / name / name
    return cache_root() / PROGRAMS[name].module.key / "bin" / name


def assets_of(module: Module) -> Path:
    """Where the `assets` of a module are, once its programs are built."""
    if module is KUEUE and (other := os.environ.get(KUEUE_VARIABLE, "")):
        return Path(other) / module.assets
    return cache_root() / module.key / "assets"


def are_built(names: Iterable[str]) -> bool:
    """Whether these programs are there, so that `ensure` builds none."""
    return not _missing({name: path_of(name) for name in names})


def _check_assets(paths: Mapping[str, Path]) -> None:
    """Refuse a folder of assets that lacks a program, or whose kube-apiserver is of another minor version.

    The tests read fields and feature gates of one version: against another one they would fail without a reason.
    """
    folder = os.environ.get(ASSETS_VARIABLE, "")
    if not folder:
        return
    for name in _ASSETS:
        if name in paths and not os.access(paths[name], os.X_OK):
            raise Unavailable(f"{ASSETS_VARIABLE}={folder}: has no program {name}: correct the folder, or unset it")
    if "kube-apiserver" in paths:
        answer = subprocess.run([paths["kube-apiserver"], "--version"], capture_output=True, text=True, check=False)
        found = re.search(r"v\d+\.\d+", answer.stdout)
        wanted = KUBERNETES.version.rpartition(".")[0]
        if found is None or found[0] != wanted:
            raise Unavailable(
                f"{ASSETS_VARIABLE}={folder}: kube-apiserver is {answer.stdout.strip() or 'not a program that runs'}, "
                f"and the tests need {wanted}: install that version, or unset the variable"
            )


def ensure(names: Iterable[str] = CONTROL_PLANE) -> Mapping[str, Path]:
    """The paths of the named binaries, all of them built.

    What is missing is built now, which takes minutes. Two processes never build at once.
    Raises `Unavailable` where there is no Go, the modules cannot be downloaded or the build fails.
    """
    paths = {name: path_of(name) for name in names}
    _check_assets(paths)
    if not _missing(paths):
        return paths
    lock = cache_root() / "build.lock"
    waited = False

    def wait() -> None:
        nonlocal waited
        waited = True
        report("waiting for a build in another process")

    with locked(lock, on_wait=wait):
        # Who waited for a build that failed shares its failure: eight workers need not fail one after another.
        if _missing(paths) and waited and (failure := lock.read_text()):
            raise Unavailable(failure)
        lock.write_text("")
        try:
            _build_all(_missing(paths))
        except Unavailable as error:
            lock.write_text(str(error))
            raise
    return paths


def _missing(paths: Mapping[str, Path]) -> list[str]:
    return [name for name, path in paths.items() if not path.exists()]


def _build_all(names: Iterable[str]) -> None:
    """Build module by module: the binaries of one share most of their packages."""
    groups = {folder: list(group) for folder, group in groupby(sorted(names, key=_folder), key=_folder)}
    modules = [PROGRAMS[group[0]].module for group in groups.values()]
    if not modules:
        return
    go = find_go(max(required_version(module.go_mod) for module in modules))
    for module, group in zip(modules, groups.values(), strict=True):
        report(f"building {', '.join(group)} {module.version}: {module.cold_minutes} min on 2 cores, the first time")
        _build(module, group, go=go)


def _folder(name: str) -> Path:
    return PROGRAMS[name].module.folder


def _build(module: Module, names: list[str], *, go: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache_root(), prefix="building-") as scratch:
        log, output = Path(scratch) / "log", Path(scratch) / "bin"
        output.mkdir()
        command = [str(go), "build", "-v", "-mod=readonly", "-trimpath", "-ldflags", _ldflags(module)]
        command += ["-o", f"{output}/", *(PROGRAMS[name].package for name in names)]
        built = {name: output / _executable(PROGRAMS[name].package) for name in names}
        environment = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
        with (
            log.open("wb") as stderr,
            subprocess.Popen(command, cwd=module.folder, env=environment, stderr=stderr) as process,
        ):
            try:
                _follow(process, built, log=log)
            finally:
                process.kill()
        if process.returncode != 0:
            raise Unavailable(f"go build of {module.upstream} failed: {last_error(log.read_text())}")
        _keep_assets(module, go=go, environment=environment)
        for name, path in built.items():
            path_of(name).parent.mkdir(parents=True, exist_ok=True)
            path.replace(path_of(name))


def _keep_assets(module: Module, *, go: Path, environment: Mapping[str, str]) -> None:
    """Copy the assets before the programs are in their place: who finds a program finds them, too."""
    if not module.assets:
        return
    command = [str(go), "list", "-m", "-f", "{{.Dir}}", module.upstream]
    answer = subprocess.run(command, cwd=module.folder, env=environment, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise Unavailable(f"go list of {module.upstream} failed: {last_error(answer.stderr)}")
    shutil.rmtree(assets_of(module), ignore_errors=True)
    shutil.copytree(Path(answer.stdout.strip()) / module.assets, assets_of(module), copy_function=shutil.copyfile)


def _follow(process: subprocess.Popen[bytes], built: Mapping[str, Path], *, log: Path) -> None:
    """Report each binary as it appears, and a sign of life every 20 seconds, until the build ends."""
    begin = spoke = time.monotonic()
    waiting = dict(built)
    running = True
    while running:
        running = process.poll() is None
        now = time.monotonic()
        for name in [name for name, path in waiting.items() if path.exists()]:
            del waiting[name]
            report(f"built {name} after {now - begin:.0f} s")
        if running and now - spoke >= 20:
            spoke = now
            packages = sum(" " not in line for line in log.read_text().splitlines())
            report(f"still building {', '.join(waiting)}: {packages} packages after {now - begin:.0f} s")
        time.sleep(0.2)


def _ldflags(module: Module) -> str:
    flags = ["-s", "-w"]
    if module.upstream == KUBERNETES.upstream:
        major, minor, _ = module.version.removeprefix("v").split(".", 2)
        stamps = {"gitVersion": module.version, "gitMajor": major, "gitMinor": minor}
        # The first is what `--version` prints, the second what clients send as their user agent.
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            flags += [f"-X {package}.{name}={value}" for name, value in stamps.items()]
    return " ".join(flags)


def last_error(log: str) -> str:
    """The last line that is neither a package's name (`-v` prints them) nor a download."""
    lines = [line.strip() for line in log.splitlines() if not line.startswith("go: downloading")]
    return next((line for line in reversed(lines) if " " in line), "no message")
