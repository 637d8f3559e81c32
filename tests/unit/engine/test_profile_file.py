"""A file of accelerator profiles, as the operator and the commands read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtj.engine.profile_file import ProfilesError, profiles


@pytest.mark.parametrize("beginning", ["", "acceleratorProfiles:\n"], ids=["a list", "values of the chart"])
def test_own_profiles_join_and_replace_the_shipped_ones(tmp_path: Path, beginning: str) -> None:
    file = tmp_path / "profiles.yaml"
    file.write_text(f"{beginning}- {{name: nvidia, resource: example.com/gpu}}\n- {{name: fpga, resource: a.b/fpga}}\n")
    found = profiles(file)
    assert (found["nvidia"].resource, found["fpga"].resource) == ("example.com/gpu", "a.b/fpga")
    assert "tpu-v5e" in found


def test_what_each_pod_needs_besides_may_be_a_whole_number(tmp_path: Path) -> None:
    file = tmp_path / "profiles.yaml"
    file.write_text("- {name: fpga, resource: x, resources: {rdma/hca: 1, hugepages-2Mi: 1Gi}}")
    assert profiles(file)["fpga"].resources == {"rdma/hca": "1", "hugepages-2Mi": "1Gi"}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"nvidia", "valid list"),
        (b"- {name: fpga}", r"profiles\[0\].resource: Field required"),
        (b"- {name: fpga, resource: x, color: red}", r"profiles\[0\].color"),
        (b"- {name: fpga, resource: x, resources: {rdma/hca: true}}", r"profiles\[0\].resources.rdma/hca"),
        (b"- {name: fpga, resource: x, resources: {rdma/hca: 1.5}}", r"profiles\[0\].resources.rdma/hca"),
        (b"- [", "not YAML"),
        (b"\xff", "not YAML"),
        (None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_used_says_where(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    file = tmp_path / "profiles.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ProfilesError, match=complaint) as caught:
        profiles(file)
    assert str(file) in str(caught.value)
