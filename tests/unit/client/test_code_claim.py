"""Claims that bring code: how they are named, and which cannot bring any."""

from __future__ import annotations

import pytest

from dtj.api.json import JsonObject
from dtj.client import CodeError
from dtj.client.code_claim import CodeClaim, check

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("words", "name", "path"),
    [
        ("shared", "shared", "dtj-code/abc.tar.gz"),
        ("shared/", "shared", "dtj-code/abc.tar.gz"),
        ("a.b-c/of mine/code/", "a.b-c", "of mine/code/dtj-code/abc.tar.gz"),
    ],
)
def test_a_claim_is_named_with_or_without_a_directory(words: str, name: str, path: str) -> None:
    claim = CodeClaim.parse(words)
    assert (claim.name, claim.path_of("abc")) == (name, path)


@pytest.mark.parametrize("words", ["", "/dir", "Shared", "a_b", "a" * 254, "-a", "a..b"])
def test_what_cannot_be_the_name_of_a_claim_is_refused(words: str) -> None:
    with pytest.raises(CodeError, match="cannot be the name of a PersistentVolumeClaim: use NAME or NAME/DIR"):
        CodeClaim.parse(words)


@pytest.mark.parametrize("directory", ["..", "a/../b", "a//b", "/a", "./a", "a\nb", "a" * 1025])
def test_what_cannot_be_a_directory_of_a_claim_is_refused(directory: str) -> None:
    with pytest.raises(CodeError, match="cannot be a directory of the claim: use NAME or NAME/DIR"):
        CodeClaim.parse(f"shared/{directory}")


def claim(*modes: str, **others: JsonObject) -> JsonObject:
    return {
        "metadata": {"name": "shared", "namespace": "team", **others.get("metadata", {})},
        "spec": {"accessModes": list(modes), **others.get("spec", {})},
        "status": {"phase": "Bound", **others.get("status", {})},
    }


@pytest.mark.parametrize(
    ("body", "pods"),
    [
        (claim("ReadWriteMany"), 8),
        (claim("ReadWriteOnce", "ReadWriteMany"), 8),
        (claim("ReadWriteOnce"), 1),
        (claim("ReadWriteMany", status={"phase": "Pending"}), 8),
    ],
)
def test_a_claim_for_all_pods_is_taken(body: JsonObject, pods: int) -> None:
    assert check(body, pods=pods) == ""


def test_a_claim_of_one_node_is_taken_with_a_warning_for_several_pods() -> None:
    assert check(claim("ReadWriteOnce"), pods=2) == (
        "PersistentVolumeClaim shared in namespace team is ReadWriteOnce: pods on other nodes than the first cannot "
        "start; a claim with ReadWriteMany has no such limit"
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (claim("ReadWriteOncePod"), "is for one pod alone (ReadWriteOncePod): name a claim with ReadWriteMany"),
        (claim("ReadOnlyMany"), "cannot be written (ReadOnlyMany): name a claim with ReadWriteMany"),
        (claim("ReadWriteMany", status={"phase": "Lost"}), "is Lost, its volume is gone: delete the claim, create it"),
        (claim("ReadWriteMany", spec={"volumeMode": "Block"}), "is a block device (volumeMode: Block): name a claim"),
        (
            claim("ReadWriteMany", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            "is being deleted: name another claim",
        ),
    ],
)
def test_a_claim_that_cannot_bring_code_is_refused(body: JsonObject, words: str) -> None:
    with pytest.raises(CodeError) as refused:
        check(body, pods=1)
    assert str(refused.value).startswith(f"PersistentVolumeClaim shared in namespace team {words}")
