"""Code on a claim: checks, the pod that copies, and the job, on a real API server with a kubelet that is played."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from builders import manifest
from dtj.api.json import JsonObject, dig, objects, text
from dtj.client import AsyncClient, CodeError, train
from dtj.client.code_claim import CodeClaim
from dtj.client.code_copy import CodeCopy, CopyTimes
from dtj.client.code_manifest import JobWithCodeOnClaim, with_code_on_claim
from dtj.client.code_pack import CLAIM_LIMIT, pack
from dtj.client.manifests import manifests_of
from patience import PATIENCE_SECONDS
from support.api_proxy import ApiProxy, Upstream
from support.command_line import CommandLine
from support.job_world import MERGE_PATCH, JobWorld
from support.kubelet_ports import KubeletPorts, copier, copiers
from support.local_runs import write
from support.loop_thread import LoopThread

pytestmark = pytest.mark.api

KIND = "distributedtrainingjob.training.dtj.dev"


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[KubeletPorts]:
    (tmp_path / "volume").mkdir()
    played = KubeletPorts(tmp_path / "volume")
    yield played
    played.close()


@pytest.fixture
def dtj(world: JobWorld, kubelet: KubeletPorts, tmp_path: Path) -> Iterator[CommandLine]:
    """``dtj`` as an administrator, in a directory with a script; the ports of pods are the kubelet's."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print('first')")
    with LoopThread() as loop:
        upstream = Upstream(world.plane.url, world.plane.tls_for("copier", groups=["system:masters"]))
        proxy = ApiProxy(upstream, trouble=kubelet)
        loop.run(proxy.start())
        command_line = CommandLine(tmp_path, proxy.kubeconfig(tmp_path), world.namespace)
        yield command_line
        command_line.close()
        loop.run(proxy.close())
        loop.run(upstream.close())


def make_claim(world: JobWorld, *modes: str) -> None:
    spec: JsonObject = {"accessModes": list(modes), "resources": {"requests": {"storage": "1Gi"}}}
    world.create("persistentvolumeclaims", {"metadata": {"name": "shared"}, "spec": spec})


def start(dtj: CommandLine, *options: str, name: str = "a") -> subprocess.Popen[str]:
    """``dtj submit --code code --code-claim shared/mine`` of a job."""
    file = write(dtj.folder, manifest(name))
    return dtj.start("submit", "--code", "code", "--code-claim", "shared/mine", *options, file)


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """The exit code, and what was printed after the line about the code that is packed."""
    output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert errors.startswith("Code of code: 1 file, 14 bytes, packed "), errors
    return process.returncode, output, errors.partition("\n")[2]


def print_weights() -> None:
    """What :func:`dtj.client.train` is given."""
    print("weights")


def archives(kubelet: KubeletPorts) -> list[Path]:
    return [path for path in kubelet.volume.rglob("*") if path.is_file()]


def test_the_code_is_copied_once_and_the_job_reads_it_from_the_claim(
    world: JobWorld, dtj: CommandLine, kubelet: KubeletPorts
) -> None:
    make_claim(world, "ReadWriteMany")
    first = start(dtj)
    kubelet.run(world)
    code, output, errors = end(first)
    digest = pack(dtj.folder / "code").digest
    path = f"mine/dtj-code/{digest}.tar.gz"
    assert (code, errors) == (0, "")
    assert output == f"{path} copied to persistentvolumeclaim/shared\n{KIND}/a created\n"
    assert archives(kubelet) == [kubelet.volume / path]
    assert copiers(world) == []
    (unpack,) = objects(dig(world.body("a"), "spec", "template", "spec", "initContainers"))
    assert f"/dtj/code-archive/{path}" in unpack["command"]  # type: ignore[operator]
    second = start(dtj, name="b")
    kubelet.run(world)
    code, output, errors = end(second)
    assert (code, errors) == (0, "")
    assert output == f"{path} is already on persistentvolumeclaim/shared\n{KIND}/b created\n"


def test_a_function_is_trained_with_code_from_a_claim(world: JobWorld, dtj: CommandLine, kubelet: KubeletPorts) -> None:
    make_claim(world, "ReadWriteMany")
    with ThreadPoolExecutor(1) as pool:
        submitted = pool.submit(
            train,
            print_weights,
            image="example/trainer:1",
            name="a",
            code_claim="shared/mine",
            namespace=world.namespace,
            kubeconfig=str(dtj.kubeconfig),
        )
        kubelet.run(world)
        with submitted.result(PATIENCE_SECONDS) as run:
            assert run.name == "a"
    (archive,) = archives(kubelet)
    with tarfile.open(archive) as packed:
        assert packed.getnames() == ["dtj_function.py"]
    (unpack,) = objects(dig(world.body("a"), "spec", "template", "spec", "initContainers"))
    assert f"/dtj/code-archive/{archive.relative_to(kubelet.volume)}" in unpack["command"]  # type: ignore[operator]


def test_a_run_on_a_cluster_brings_its_code_by_a_claim(
    world: JobWorld, dtj: CommandLine, kubelet: KubeletPorts
) -> None:
    make_claim(world, "ReadWriteMany")
    file = write(dtj.folder, manifest("a"))
    options = ("--cluster", "--timeout=1s", "--code", "code", "--code-claim", "shared/mine")
    process = dtj.start("run", *options, file)
    kubelet.run(world)
    code, output, _ = end(process)
    assert code == 3, output
    (archive,) = archives(kubelet)
    (unpack,) = objects(dig(world.body("a"), "spec", "template", "spec", "initContainers"))
    assert f"/dtj/code-archive/{archive.relative_to(kubelet.volume)}" in unpack["command"]  # type: ignore[operator]


def test_the_code_alone_is_copied_for_a_job_that_kubectl_applies(
    world: JobWorld, dtj: CommandLine, kubelet: KubeletPorts
) -> None:
    make_claim(world, "ReadWriteMany")
    process = start(dtj, "--copy-only")
    kubelet.run(world)
    code, output, _ = end(process)
    assert (code, len(archives(kubelet)), world.jobs()) == (0, 1, [])
    assert output.endswith(" copied to persistentvolumeclaim/shared\n")


def test_the_pod_that_copies_fits_a_restricted_namespace(
    world: JobWorld, dtj: CommandLine, kubelet: KubeletPorts
) -> None:
    world.plane.kubectl("label", "namespace", world.namespace, "pod-security.kubernetes.io/enforce=restricted")
    make_claim(world, "ReadWriteMany")
    process = start(dtj)
    kubelet.run(world)
    assert end(process)[0] == 0


def test_a_claim_that_is_not_there_is_one_line_and_nothing_is_created(world: JobWorld, dtj: CommandLine) -> None:
    assert end(start(dtj)) == (
        2,
        "",
        f"--code-claim: PersistentVolumeClaim shared does not exist in namespace {world.namespace}: create it, or name "
        f"another one (kubectl get persistentvolumeclaims -n {world.namespace})\n",
    )
    assert (world.jobs(), copiers(world)) == ([], [])


def test_a_claim_for_one_pod_is_refused_and_one_for_one_node_is_warned_of(
    world: JobWorld, dtj: CommandLine, kubelet: KubeletPorts
) -> None:
    make_claim(world, "ReadWriteOncePod")
    code, output, errors = end(start(dtj))
    assert (code, output) == (2, "")
    assert "is for one pod alone (ReadWriteOncePod): name a claim with ReadWriteMany" in errors
    world.delete("persistentvolumeclaims", "shared")
    world.eventually(lambda: _assert_none(world.get("persistentvolumeclaims", "shared")))
    make_claim(world, "ReadWriteOnce")
    process = start(dtj)
    kubelet.run(world)
    code, _, errors = end(process)
    assert code == 0
    assert "is ReadWriteOnce: pods on other nodes than the first cannot start" in errors


def test_a_job_that_would_be_refused_is_refused_before_anything_is_copied(world: JobWorld, dtj: CommandLine) -> None:
    make_claim(world, "ReadWriteMany")
    world.submit("a")
    code, output, errors = end(start(dtj))
    assert (code, output) == (4, "")
    assert '"a" already exists' in errors
    assert copiers(world) == []


def test_a_connection_that_is_cut_is_one_line_and_the_pod_is_deleted(
    world: JobWorld, dtj: CommandLine, kubelet: KubeletPorts
) -> None:
    make_claim(world, "ReadWriteMany")
    kubelet.cuts = True
    process = start(dtj)
    kubelet.run(world)
    code, output, errors = end(process)
    assert (code, output) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith("--code-claim: the connection was cut after ")
    assert line.endswith(", and PersistentVolumeClaim shared has nothing of them: submit again")
    assert (archives(kubelet), world.jobs(), copiers(world)) == ([], [], [])


def test_a_volume_that_cannot_take_the_code_is_one_line(
    world: JobWorld, dtj: CommandLine, kubelet: KubeletPorts
) -> None:
    make_claim(world, "ReadWriteMany")
    kubelet.longest_file = 100
    process = start(dtj)
    kubelet.run(world)
    line = "--code-claim: PersistentVolumeClaim shared cannot take the code: File too large: submit again\n"
    assert end(process) == (2, "", line)
    assert (archives(kubelet), world.jobs(), copiers(world)) == ([], [], [])


def test_ctrl_c_deletes_the_pod(world: JobWorld, dtj: CommandLine) -> None:
    make_claim(world, "ReadWriteMany")
    process = start(dtj)
    world.eventually(lambda: copier(world))
    process.send_signal(signal.SIGINT)
    assert end(process)[:2] == (130, "")
    assert (world.jobs(), copiers(world)) == ([], [])


# -- pods that do not start ---------------------------------------------------------------------------------------


def job_of(dtj: CommandLine) -> JobWithCodeOnClaim:
    """Its pods wait for a scheduler that nobody runs, so what is reported about them is the test's alone."""
    body = manifest("a")
    pod_spec = dig(body, "spec", "template", "spec")
    assert isinstance(pod_spec, dict)
    pod_spec["schedulerName"] = "nobody"
    (found,) = manifests_of(body)
    return with_code_on_claim(found, pack(dtj.folder / "code", CLAIM_LIMIT), CodeClaim("shared"))


UNSCHEDULABLE = {
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    ]
}
NO_IMAGE = {
    "containerStatuses": [
        {
            "name": "dtj-copy-code",
            "image": "a",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}},
        }
    ]
}
ENDED = {"phase": "Failed", "reason": "DeadlineExceeded", "message": "Pod was active too long"}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (UNSCHEDULABLE, "cannot start (Unschedulable): 0/3 nodes are available; correct the image, the scheduling"),
        (NO_IMAGE, "cannot start (ImagePullFailed): no such image; correct"),
        (ENDED, "has ended (Pod was active too long): submit again"),
    ],
    ids=["unschedulable", "no-image", "ended"],
)
async def test_a_pod_that_does_not_start_is_one_line_with_the_reason(
    world: JobWorld, dtj: CommandLine, status: JsonObject, words: str
) -> None:
    make_claim(world, "ReadWriteMany")
    async with await AsyncClient.connect(kubeconfig=str(dtj.kubeconfig), namespace=world.namespace) as client:
        times = CopyTimes(blocked=0.0)
        copy = CodeCopy(client.gateway, job_of(dtj), namespace=world.namespace, report=print, times=times)
        running = asyncio.create_task(copy.run())
        pod = await asyncio.to_thread(world.eventually, lambda: copier(world))
        path = f"/api/v1/namespaces/{world.namespace}/pods/{text(dig(pod, 'metadata', 'name'))}/status"
        await asyncio.to_thread(world.api.request, "PATCH", path, {"status": status}, content_type=MERGE_PATCH)
        with pytest.raises(CodeError) as refused:
            await running
    assert words in str(refused.value)
    assert copiers(world) == []


async def test_a_pod_that_starts_too_late_is_one_line(world: JobWorld, dtj: CommandLine) -> None:
    make_claim(world, "ReadWriteMany")
    async with await AsyncClient.connect(kubeconfig=str(dtj.kubeconfig), namespace=world.namespace) as client:
        copy = CodeCopy(
            client.gateway, job_of(dtj), namespace=world.namespace, report=print, times=CopyTimes(start=0.0)
        )
        with pytest.raises(CodeError, match="did not start in 0 s: the cluster reports no reason"):
            await copy.run()
    assert copiers(world) == []


async def test_the_python_client_copies_code_too(world: JobWorld, dtj: CommandLine, kubelet: KubeletPorts) -> None:
    make_claim(world, "ReadWriteMany")
    async with await AsyncClient.connect(kubeconfig=str(dtj.kubeconfig), namespace=world.namespace) as client:
        with pytest.raises(CodeError, match="code_claim needs code"):
            await client.submit(manifest("a"), code_claim="shared")
        submitted = asyncio.create_task(client.submit(manifest("a"), code=dtj.folder / "code", code_claim="shared"))
        await asyncio.to_thread(kubelet.run, world)
        assert (await submitted).name == "a"
    assert len(archives(kubelet)) == 1


# -- rights -------------------------------------------------------------------------------------------------------

RIGHTS: list[JsonObject] = [
    {"apiGroups": ["training.dtj.dev"], "resources": ["distributedtrainingjobs"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "delete"]},
]


def test_without_the_right_to_forward_ports_the_pod_is_deleted_and_no_job_created(
    world: JobWorld, dtj: CommandLine
) -> None:
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}"
    group = "rbac.authorization.k8s.io"
    world.api.request("POST", f"{rbac}/roles", {"metadata": {"name": "coder"}, "rules": list(RIGHTS)})
    binding: JsonObject = {
        "metadata": {"name": "coder"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "coder"},
        "subjects": [{"kind": "User", "apiGroup": group, "name": "coder"}],
    }
    world.api.request("POST", f"{rbac}/rolebindings", binding)
    make_claim(world, "ReadWriteMany")
    dtj.kubeconfig = world.plane.kubeconfig_for("coder")
    process = start(dtj)
    pod = world.eventually(lambda: copier(world))
    world.run_pod(text(dig(pod, "metadata", "name")))
    code, output, errors = end(process)
    assert (code, output) == (4, "")
    assert "port 7070 of pod dtj-copy-code-" in errors
    assert "cannot be forwarded: HTTP status 403" in errors
    assert (world.jobs(), copiers(world)) == ([], [])


def _assert_none(found: object) -> None:
    assert found is None
