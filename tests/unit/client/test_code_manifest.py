"""A job with its code: what is added to its pods and has no place there, its ConfigMap, and how a pod unpacks it."""

from __future__ import annotations

import asyncio
import base64
import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from builders import manifest
from dtj.api.json import JsonObject, dig, object_at, objects, text
from dtj.client import InvalidManifest
from dtj.client.aio import AsyncClient
from dtj.client.checks import Manifest, manifests_of
from dtj.client.code_manifest import ARCHIVE, UNPACK_CODE, with_code
from dtj.client.code_pack import CodePack, pack
from dtj.core.manifests.pod import PodRenderer
from dtj.core.platform import Platform
from dtj.core.replicas import Replica
from dtj.kube.client import KubeGateway
from dtj.kube.errors import AlreadyExists, ApiError, Forbidden
from dtj.kube.gateway import CONFIG_MAPS, JOBS, Resource


@pytest.fixture
def packed(tmp_path: Path) -> CodePack:
    """A directory with one program, packed."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print('trained')")
    return pack(tmp_path / "code")


def coded(packed: CodePack, **spec: object) -> Manifest:
    (found,) = manifests_of(manifest(**spec))  # type: ignore[arg-type]
    return with_code(found, packed)


def template(**container: object) -> JsonObject:
    return {"spec": {"containers": [{"name": "trainer", "image": "example/trainer:1", **container}]}}  # type: ignore[dict-item]


def pod_spec(job: Manifest, *path: str) -> JsonObject:
    found = dig(job.body, "spec", *(path or ("template",)), "spec")
    assert isinstance(found, dict)
    return found


def unpacking(job: Manifest, *path: str) -> JsonObject:
    first, *_ = objects(pod_spec(job, *path)["initContainers"])
    assert first["name"] == "dtj-unpack-code"
    return first


def problems(packed: CodePack, **spec: object) -> tuple[str, ...]:
    with pytest.raises(InvalidManifest) as refused:
        coded(packed, **spec)
    return refused.value.problems


def test_the_config_map_has_the_digest_in_its_name_and_cannot_be_changed(packed: CodePack) -> None:
    config_map = coded(packed).config_map
    assert dig(config_map, "metadata", "name") == f"digits-code-{packed.digest[:10]}"
    assert dig(config_map, "metadata", "annotations", "training.dtj.dev/code-digest") == f"sha256:{packed.digest}"
    assert config_map is not None
    assert config_map["immutable"] is True
    archive = dig(config_map, "binaryData", ARCHIVE)
    assert isinstance(archive, str)
    assert base64.b64decode(archive) == packed.archive


def test_the_code_is_the_working_directory_of_the_container_that_trains(packed: CodePack) -> None:
    sidecar: JsonObject = {"name": "sidecar", "image": "example/sidecar:1"}
    spec: JsonObject = {"containers": [sidecar, *objects(dig(template(), "spec", "containers"))]}
    job = coded(packed, template={"spec": spec})
    injected, trainer = objects(pod_spec(job)["containers"])
    assert injected == sidecar
    assert trainer["workingDir"] == "/code"
    assert trainer["volumeMounts"] == [{"name": "dtj-code", "mountPath": "/code"}]
    assert pod_spec(job)["volumes"] == [
        {"name": "dtj-code-archive", "configMap": {"name": dig(job.config_map, "metadata", "name")}},
        {"name": "dtj-code", "emptyDir": {}},
    ]


def test_what_the_manifest_has_stays(packed: CodePack) -> None:
    body = template(workingDir="/srv/job/", volumeMounts=[{"name": "data", "mountPath": "/data"}])
    spec = body["spec"]
    assert isinstance(spec, dict)
    spec |= {"volumes": [{"name": "data", "emptyDir": {}}], "initContainers": [{"name": "own", "image": "own:1"}]}
    job = coded(packed, template=body)
    (trainer,) = objects(pod_spec(job)["containers"])
    assert [mount["mountPath"] for mount in objects(trainer["volumeMounts"])] == ["/data", "/srv/job"]
    assert [volume["name"] for volume in objects(pod_spec(job)["volumes"])] == ["data", "dtj-code-archive", "dtj-code"]
    assert [each["name"] for each in objects(pod_spec(job)["initContainers"])] == ["dtj-unpack-code", "own"]


def test_the_manifest_that_was_read_is_not_changed(packed: CodePack) -> None:
    (found,) = manifests_of(manifest())
    with_code(found, packed)
    assert found.body == found.document.body == manifest()


def test_each_template_of_a_role_unpacks_with_its_own_image(packed: CodePack) -> None:
    roles = {"worker": {"replicas": 2}, "evaluator": {"template": template(image="example/evaluator:1")}}
    job = coded(packed, replicaSpecs=roles)
    assert unpacking(job)["image"] == "example/trainer:1"
    assert unpacking(job, "replicaSpecs", "evaluator", "template")["image"] == "example/evaluator:1"


def test_a_template_that_all_roles_replace_needs_none(packed: CodePack) -> None:
    roles = {"worker": {"replicas": 2, "template": template()}}
    job = coded(packed, replicaSpecs=roles, template=None)
    assert dig(job.body, "spec", "template") is None
    assert unpacking(job, "replicaSpecs", "worker", "template")["image"] == "example/trainer:1"


def test_the_code_is_unpacked_by_the_user_and_with_the_rights_of_the_container_that_trains(packed: CodePack) -> None:
    context = {"runAsUser": 1000, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    job = coded(packed, template=template(securityContext=context, imagePullPolicy="Always"))
    assert unpacking(job)["securityContext"] == context
    assert unpacking(job)["imagePullPolicy"] == "Always"


def test_the_operator_gives_it_what_a_restricted_namespace_requires(packed: CodePack) -> None:
    job = coded(packed)
    assert job.job.spec is not None
    renderer = PodRenderer(job.job, job.spec, Platform(restricted=True))
    (unpack,) = objects(dig(renderer.render(Replica(job.spec.roles()[0], 0)), "spec", "initContainers"))
    assert unpack["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize(
    ("main", "roles", "expected"),
    [
        ({}, {}, None),
        (
            {"limits": {"cpu": "2", "memory": "4Gi", "example.com/gpu": 1}, "requests": {"cpu": "2", "memory": "4Gi"}},
            {},
            {"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "2", "memory": "4Gi"}},
        ),
        (
            {"requests": {"cpu": "2", "memory": "4Gi"}},
            {"ps": {"replicas": 1, "resources": {"requests": {"cpu": "500m", "memory": "5Gi"}}}},
            {"requests": {"cpu": "500m", "memory": "4Gi"}},
        ),
        (
            {"requests": {"cpu": "4"}},
            {"ps": {"replicas": 1, "resources": {"limits": {"cpu": "1"}}}},
            {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
        ),
        ({"requests": {"cpu": 1}}, {}, {"requests": {"cpu": "1"}}),
    ],
)
def test_it_has_resources_where_a_quota_asks_for_them_and_raises_the_request_of_no_pod(
    packed: CodePack, main: JsonObject, roles: JsonObject, expected: JsonObject | None
) -> None:
    strategy = "ParameterServer" if roles else "MultiWorkerMirrored"
    others = {"chief": {}, **roles} if roles else {}
    job = coded(
        packed,
        strategy=strategy,
        replicaSpecs={"worker": {"replicas": 2}, **others},
        template=template(resources=main),
    )
    assert unpacking(job).get("resources") == expected


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"image": None}, "image: Required value: with --code an init container of the same image unpacks the code"),
        ({"workingDir": "/"}, 'workingDir: "/" cannot hold the code: leave it out, or name a directory such as /code'),
        ({"workingDir": "here"}, 'workingDir: "here" cannot hold the code: leave it out, or'),
        (
            {"volumeMounts": [{"name": "own", "mountPath": "/code/"}]},
            "volumeMounts[0].mountPath: /code is where the code of --code goes: remove this mount and volume own, or",
        ),
    ],
)
def test_code_that_has_no_place_is_one_line_that_names_the_field(
    packed: CodePack, container: JsonObject, words: str
) -> None:
    body = template(**container)
    spec = body["spec"]
    assert isinstance(spec, dict)
    for each in objects(spec["containers"]):
        if each["image"] is None:
            del each["image"]
    spec["volumes"] = [{"name": "own", "emptyDir": {}}]
    (problem,) = problems(packed, template=body)
    assert problem.startswith(f"the manifest: digits: spec.template.spec.containers[0].{words}")


def test_a_manifest_that_was_printed_with_its_code_is_not_given_other_code(packed: CodePack) -> None:
    with pytest.raises(InvalidManifest, match=r"the manifest has its code already \(volume dtj-code\): leave out --"):
        with_code(coded(packed), packed)
    (printed,) = manifests_of(coded(packed).body)
    with pytest.raises(InvalidManifest, match="the manifest has its code already"):
        with_code(printed, packed)


class Server:
    """An API server that keeps jobs and ConfigMaps by name, and refuses some verbs on ConfigMaps."""

    def __init__(self, *refused: str) -> None:
        self.kept: dict[tuple[Resource, str], JsonObject] = {}
        self._refused = refused

    async def create(self, resource: Resource, *, body: JsonObject, dry_run: bool = False, **_: object) -> JsonObject:
        key = resource, text(dig(body, "metadata", "name"))
        self._check(resource, "dry run" if dry_run else "create")
        if key in self.kept:
            raise AlreadyExists(f"{key[1]} is there", status=409, reason="AlreadyExists")
        if dry_run:
            return body
        metadata = body["metadata"]
        assert isinstance(metadata, dict)
        self.kept[key] = {**body, "metadata": {**metadata, "uid": f"uid of {key[1]}"}}
        return self.kept[key]

    async def get(self, resource: Resource, *, name: str, **_: object) -> JsonObject:
        return self.kept[resource, name]

    async def delete(self, resource: Resource, *, name: str, uid: str, **_: object) -> None:
        self._check(resource, "delete")
        assert dig(self.kept[resource, name], "metadata", "uid") == uid
        del self.kept[resource, name]

    def _check(self, resource: Resource, verb: str) -> None:
        if resource == CONFIG_MAPS and verb in self._refused:
            raise Forbidden(f"no {verb}", status=403, reason="Forbidden")


def created(server: Server, packed: CodePack, *, left: bool = False) -> JsonObject:
    """What the server has of the ConfigMap after its job was created; ``left`` says that an earlier job had it."""
    (found,) = manifests_of(manifest("a"))
    job = with_code(found, packed)
    assert job.config_map is not None
    key = CONFIG_MAPS, text(dig(job.config_map, "metadata", "name"))
    if left:
        metadata = {**object_at(job.config_map, "metadata"), "uid": "uid of the one that was left"}
        server.kept[key] = {**job.config_map, "metadata": metadata, "data": "left"}
    client = AsyncClient(cast("KubeGateway", cast("Any", server)), namespace="here")
    asyncio.run(client.create(job, namespace="here"))
    return server.kept[key]


@pytest.mark.parametrize("left", [False, True])
def test_the_config_map_is_owned_by_its_job_also_if_an_earlier_one_left_one(packed: CodePack, left: bool) -> None:
    config_map = created(Server(), packed, left=left)
    (owner,) = objects(dig(config_map, "metadata", "ownerReferences"))
    assert (owner["kind"], owner["uid"], "controller" in owner) == ("DistributedTrainingJob", "uid of a", False)
    assert "data" not in config_map


@pytest.mark.parametrize(("refused", "left"), [("dry run", False), ("create", False), ("delete", True)])
def test_a_job_whose_code_is_refused_does_not_stay(packed: CodePack, refused: str, left: bool) -> None:
    server = Server(refused)
    with pytest.raises(ApiError, match=f"no {refused}"):
        created(server, packed, left=left)
    assert (JOBS, "a") not in server.kept


def test_submit_logs_what_it_does_not_send(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("train.py", ".env"):
        (tmp_path / name).write_text("")
    client = AsyncClient(cast("KubeGateway", cast("Any", Server())), namespace="here")
    asyncio.run(client.submit(manifest("a"), code=tmp_path))
    assert caplog.messages == [f"code: {pack(tmp_path).warning}"]


def unpack(archive: Path, target: Path, digest: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-W", "error", "-c", UNPACK_CODE, str(archive), str(target), digest, "copy it"]
    return subprocess.run(program, capture_output=True, text=True, check=False)


def test_the_code_is_unpacked(packed: CodePack, tmp_path: Path) -> None:
    archive, target = tmp_path / "archive", tmp_path / "target"
    archive.write_bytes(packed.archive)
    target.mkdir()
    done = unpack(archive, target, packed.digest)
    assert (done.returncode, done.stderr) == (0, "")
    assert (target / "train.py").read_text() == "print('trained')"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda archive: None, "the code sha256:{digest} is not there: copy it"),
        (
            lambda archive: b"no archive",
            "the code sha256:{digest} cannot be read (Not a gzipped file (b'no')): copy it",
        ),
        (lambda archive: archive[:-20], "the code sha256:{digest} cannot be read ("),
        (
            lambda archive: gzip.compress(b"other", mtime=0),
            "the code sha256:{digest} is damaged, its digest is sha256:",
        ),
    ],
    ids=["absent", "no archive", "half of it", "other content"],
)
def test_code_that_is_not_the_one_of_the_digest_is_one_line_and_nothing_is_unpacked(
    packed: CodePack, tmp_path: Path, content: Callable[[bytes], bytes | None], words: str
) -> None:
    archive, target = tmp_path / "archive", tmp_path / "target"
    target.mkdir()
    if (given := content(packed.archive)) is not None:
        archive.write_bytes(given)
    done = unpack(archive, target, packed.digest)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(words.format(digest=packed.digest))
    assert list(target.iterdir()) == []
