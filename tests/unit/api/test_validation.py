"""Manifests are checked offline as an API server would check them (the comparison itself is in tests/api)."""

from __future__ import annotations

import re

import pytest

from bad_manifests import RULE_BREAKERS, SCHEMA_BREAKERS
from bad_tfjobs import role, tfjob
from builders import job, manifest
from dtj.api import rules
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig
from dtj.api.spec import Role
from dtj.api.validation import validate
from dtj.client.checks import check_documents
from dtj.client.manifest_files import Document
from dtj.core.platform import ClusterNetwork, Platform, ReplicaServiceNetwork
from dtj.core.validity import problems


@pytest.mark.parametrize("case", RULE_BREAKERS)
def test_each_broken_rule_is_one_violation_with_its_field(case: str) -> None:
    (violation,) = validate(RULE_BREAKERS[case])
    assert violation.field.startswith(("spec", "metadata.name"))


def test_every_rule_has_a_manifest_that_breaks_it() -> None:
    reported = {violation.message for body in RULE_BREAKERS.values() for violation in validate(body)}
    checked = {rule.message for rule in rules.RULES if rule.holds is not None and rule.names is None}
    assert {message for message in checked - reported if not message.startswith("the name is too long")} == set()


def test_a_whole_number_written_with_a_point_is_an_integer_as_to_an_api_server() -> None:
    body = manifest(replicaSpecs={"worker": {"replicas": 2.0}}, runPolicy={"scheduling": {"minAvailable": 2.0}})
    assert validate(body) == ()
    (item,) = check_documents([Document(path=None, number=1, alone=True, body=body)], Platform()).manifests
    assert item.spec.replicas(Role.WORKER) == 2
    assert dig(item.body, "spec", "replicaSpecs", "worker", "replicas") == 2
    (violation,) = validate(manifest(replicaSpecs={"worker": {"replicas": 2.5}}))
    assert "must be of type integer" in violation.message


@pytest.mark.parametrize("case", SCHEMA_BREAKERS)
def test_types_and_ranges_are_checked_with_the_path_of_the_field(case: str) -> None:
    violations = validate(SCHEMA_BREAKERS[case])
    assert violations
    assert all(violation.field.startswith("spec.") for violation in violations)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (
            RULE_BREAKERS["a role that is none"],
            r"spec\.replicaSpecs: there is no role master: rename or remove it; the roles are chief, worker, ps, "
            "evaluator, dispatcher, data-worker",
        ),
        (
            SCHEMA_BREAKERS["resources that are no quantity"],
            r"spec\.template\.spec\.containers\[0\]\.resources\.limits\.memory: "
            'Invalid value: "8 gigs": .*; write a quantity such as 500m, 8Gi or 1e3',
        ),
        (
            SCHEMA_BREAKERS["a misspelt field"],
            r'spec\.stratgy: unknown field "spec\.stratgy"; did you mean "strategy"\?',
        ),
        (
            manifest(
                template={"metadata": {"name": "digits"}, "spec": {"containers": [{"name": "trainer", "image": "x"}]}}
            ),
            r'spec\.template\.metadata\.name: unknown field "spec\.template\.metadata\.name"; remove it: the pods are '
            "named after the job",
        ),
        (
            SCHEMA_BREAKERS["an export as something unheard of"],
            r'spec\.export\.formats\[1\]: Unsupported value: "ONNX": supported values: "SavedModel", "TFLite", '
            '"TensorFlowJS"',
        ),
    ],
    ids=["a role", "a quantity", "a misspelt field", "a name of the template", "a format"],
)
def test_what_is_none_is_named_with_what_there_is(body: JsonObject, line: str) -> None:
    (violation,) = validate(body)
    assert re.fullmatch(line, str(violation))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (0, "Invalid value: 0: .* should be greater than or equal to 1"),
        ("Auto", 'Invalid value: "Auto": .*; write a whole number without quotes, or auto'),
        ("often", 'Invalid value: "often": .*; write a whole number without quotes, or auto'),
        ("60", 'Invalid value: "60": .*; write a whole number without quotes, or auto'),
        (2.5, 'Invalid value: "number": .* must be of type integer,string: "number"; it is 2.5'),
    ],
)
def test_the_time_between_checkpoints_is_a_whole_number_or_auto(given: object, line: str) -> None:
    (violation,) = validate(manifest(checkpoint={"path": "/c", "everySeconds": given}))
    assert re.fullmatch(rf"spec\.checkpoint\.everySeconds: {line}", str(violation))


def test_all_mistakes_are_reported_at_once() -> None:
    found = validate(manifest(strategy="Horovod", port=0, runPolicy={"cleanPodPolicy": "Some"}))
    assert {violation.field for violation in found} == {"spec.strategy", "spec.port", "spec.runPolicy.cleanPodPolicy"}


def test_a_field_or_a_value_that_is_gone_names_what_remains() -> None:
    policy = {"onNaN": "Rollback", "scheduling": {"gang": "Volcano", "topologyKey": "zone"}}
    on_nan, topology = map(str, validate(manifest(runPolicy=policy)))
    assert on_nan.endswith("; Rollback is gone: Skip leaves out each update that is not finite")
    assert 'unknown field "spec.runPolicy.scheduling.topologyKey"; it is gone: set the annotation' in topology


OPERATOR = "training.dtj.dev/dtj-operator"
SIDECAR = {"name": "proxy", "image": "x", "restartPolicy": "Always"}
ONE_POD = {"spec": {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOncePod"]}}


@pytest.mark.parametrize(
    "body",
    [
        manifest(roles={"worker": 1}),
        manifest(roles={"chief": 1, "worker": 2, "evaluator": 1}),
        manifest(strategy="ParameterServer", roles={"worker": 4, "ps": 2}),
        manifest(strategy="TPU", accelerator={"profile": "tpu-v5e", "topology": "2x4"}),
        manifest(checkpoint={"path": "gs://bucket/checkpoints", "everySteps": 100, "keep": 3}),
        *(manifest(checkpoint={"path": "/c", "everySeconds": seconds}) for seconds in (1, 300.0, "auto")),
        manifest(
            template={"spec": {"containers": [{"name": "any", "image": "x", "resources": {"limits": {"cpu": 0.5}}}]}}
        ),
        manifest("d" * 46),
        *(manifest(managedBy=name) for name in (OPERATOR, "kueue.x-k8s.io/multikueue", "a/b")),
        manifest(template={"spec": {"containers": [SIDECAR, {"name": "trainer", "image": "x"}], "initContainers": []}}),
        manifest(checkpoint={"claimTemplate": ONE_POD}, roles={"worker": 1}),
        manifest(checkpoint={"inMemory": {}}, runPolicy={"restartScope": "Pod"}),
        manifest(checkpoint={"inMemory": {"sizeLimit": "1Mi"}}, runPolicy={"restartScope": "Pod"}),
    ],
    ids=lambda body: body["spec"]["strategy"],
)
def test_what_users_write_is_valid_and_can_be_read(body: dict[str, object]) -> None:
    assert validate(body) == ()  # type: ignore[arg-type]
    assert Job.from_object(body).problems == ()  # type: ignore[arg-type]


class TestVariablesThatAreTooLong:
    """Linux starts no program with more than 131,072 bytes in one variable: name, value and a NUL."""

    @staticmethod
    def messages(**arguments: object) -> list[str]:
        return [problem.message for problem in problems(job(**arguments), Platform())]  # type: ignore[arg-type]

    def test_a_job_whose_tf_config_fits_into_no_variable_is_valid_where_the_launcher_can_derive_it(self) -> None:
        assert self.messages(roles={"worker": 10_000}) == []

    def test_it_is_not_valid_where_addresses_follow_no_pattern(self) -> None:
        class Ports(ClusterNetwork):
            def pattern(self, **_: object) -> None:  # type: ignore[override]
                return None

            def address(self, *, index: int, **_: object) -> str:
                return f"a-host-that-has-a-long-name.example.com:{index + 1}"

        platform = Platform(network=Ports(), inline_addresses=None)
        (problem,) = problems(job(roles={"worker": 3600}), platform)
        assert problem.message.startswith("spec.replicaSpecs: TF_CONFIG lists all peers and would have")
        assert "more than 131,061 in one variable: use fewer replicas" in problem.message

    def test_of_a_tfjob_it_names_the_field_that_a_tfjob_has(self) -> None:
        platform = Platform(network=ReplicaServiceNetwork())
        (problem,) = problems(Job.from_object(tfjob("m" * 40, Worker=role(3600))), platform)
        assert problem.message.startswith("spec.tfReplicaSpecs: TF_CONFIG lists all peers")

    def test_the_host_names_of_a_tpu_slice_count_too(self) -> None:
        workers = {"replicas": 6000, "accelerator": {"profile": "tpu-v5e", "topology": "100x240", "count": 4}}
        roles = {"worker": {"replicas": 1}, "dispatcher": {"replicas": 1}, "data-worker": workers}
        (message,) = self.messages(replicaSpecs=roles)
        assert message.startswith("spec.replicaSpecs.data-worker: TPU_WORKER_HOSTNAMES lists all peers")

    def test_pods_on_gpus_have_no_list_of_host_names(self) -> None:
        assert self.messages(roles={"worker": 6000}, accelerator={"profile": "gke-nvidia-l4", "count": 1}) == []


@pytest.mark.parametrize(
    ("modes", "workers", "noted"),
    [
        (["ReadWriteOnce"], 2, True),
        (["ReadWriteOnce", "ReadOnlyMany"], 2, True),
        (["ReadWriteOnce"], 1, False),
        (["ReadWriteOnce", "ReadWriteMany"], 2, False),
        (["ReadWriteMany"], 2, False),
    ],
)
def test_a_claim_that_one_node_can_mount_is_noted_if_several_pods_mount_it(
    modes: list[str], workers: int, noted: bool
) -> None:
    claim = {"spec": {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": modes}}
    body = manifest(checkpoint={"claimTemplate": claim}, roles={"worker": workers})
    found = check_documents([Document(path=None, number=1, alone=True, body=body)], Platform())
    assert found.problems == ()
    assert len(found.manifests) == 1
    assert [("use ReadWriteMany, unless all pods of the job fit on one node" in note) for note in found.notes] == (
        [True] if noted else []
    )
