"""The form of a TFJob of Kubeflow: its pods, Services and status are those that its users, Katib and Kueue know.

Source: ``pkg/controller.v1/tensorflow`` and ``pkg/controller.v1/common`` of kubeflow/training-operator v1.9.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from dtj.api.form import Form, Reading
from dtj.api.json import JsonObject, dig
from dtj.api.rule import Violation
from dtj.api.spec import JobSpec, Role
from dtj.api.status import JobStatus
from dtj.api.tfjob import names, read, rules, status
from dtj.api.tfjob.names import Label


@dataclass(frozen=True)
class TFJobForm(Form):
    """The form of a TFJob; ``chief`` is ``master`` where the job has a ``Master``."""

    api_version: ClassVar[str] = names.API_VERSION
    kind: ClassVar[str] = names.KIND
    plural: ClassVar[str] = names.PLURAL
    selector: ClassVar[str] = f"{Label.JOB_NAME},{Label.OPERATOR_NAME}={names.OPERATOR_NAME}"
    job_label: ClassVar[str] = Label.JOB_NAME
    role_label: ClassVar[str] = Label.REPLICA_TYPE
    index_label: ClassVar[str] = Label.REPLICA_INDEX
    roles_field: ClassVar[str] = "tfReplicaSpecs"
    container: ClassVar[str] = names.CONTAINER
    port_name: ClassVar[str] = names.PORT
    # From 128 on they are retried; 42 is TensorFlow's own word for a preemption.
    exit_codes_of_errors: ClassVar[frozenset[int]] = frozenset(range(1, 128)) - {42}
    retried_exit_codes: ClassVar[str] = "42 or from 128 on"
    replica_services: ClassVar[bool] = True
    pod_defaults: ClassVar[bool] = False
    tf_config_environment: ClassVar[str] = "cloud"
    running_is_ready: ClassVar[bool] = True
    kubelet_restarts: ClassVar[bool] = True
    keeps_ended_pods: ClassVar[bool] = False
    partial_admission: ClassVar[bool] = False
    waits_for_evaluator: ClassVar[bool] = False
    kubeflow_clean_up: ClassVar[bool] = True
    kueue_integration: ClassVar[bool] = True
    scheduling_field: ClassVar[str] = "schedulingPolicy"
    chart_section: ClassVar[str] = "tfjob"
    status_fields: ClassVar[frozenset[str]] = status.FIELDS
    recorded_in: ClassVar[str] = names.RECORD

    def labels(self, job: str, uid: str) -> JsonObject:
        return {Label.JOB_NAME: job, Label.OPERATOR_NAME: names.OPERATOR_NAME}

    def replica_labels(self, role: Role, index: int, *, decides: bool) -> JsonObject:
        return {
            Label.REPLICA_TYPE: self.word(role),
            Label.REPLICA_INDEX: str(index),
            **({Label.JOB_ROLE: names.MASTER_ROLE} if decides else {}),
        }

    def role_of(self, word: str) -> str:
        return str(Role.CHIEF) if word == names.MASTER else word

    def port(self, spec: JobSpec, role: Role) -> int:
        given = self.named_ports(spec, role).get(names.PORT)
        return given if isinstance(given, int) else names.DEFAULT_PORT

    def left_alone(self, spec: JsonObject) -> bool:
        return dig(spec, "runPolicy", "managedBy") not in (None, "", names.CONTROLLER)

    def read(self, spec: JsonObject, annotations: JsonObject) -> Reading:
        found, problems = read.spec_of(spec, annotations)
        # The CRD leaves words and ranges to the policy, which a cluster may lack: the rules have its lines.
        broken = rules.check(name=self.plural, spec=spec) if found is None else ()
        return found, tuple(map(str, broken)) or problems

    def schema(self) -> JsonObject:
        from dtj.api.tfjob import crd  # it is built from types, for which other commands do not wait

        return crd.schema()

    def check(self, name: str, spec: JsonObject) -> tuple[Violation, ...]:
        return rules.check(name=name, spec=spec)

    def record(self, status_: JsonObject) -> JobStatus:
        return status.recorded(status_)

    def stored(self, namespace: str, name: str, before: JsonObject, record: JobStatus) -> JsonObject:
        return status.projected(namespace, name, before, record, chief=self.chief)


TFJOB: Final = TFJobForm()


def form_of(spec: JsonObject) -> TFJobForm:
    """The form of a TFJob with this spec: it may spell its chief ``Master``, and have dynamic workers."""
    dynamic = spec.get("enableDynamicWorker") is True
    if not dynamic and not read.has_master(spec):
        return TFJOB
    return TFJobForm(names.MASTER if read.has_master(spec) else TFJOB.chief, dynamic_workers=dynamic)
