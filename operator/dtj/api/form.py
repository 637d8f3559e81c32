"""The form of a job: what differs between the kinds of jobs that one planner runs.

The form of a DistributedTrainingJob is here, that of Kubeflow's TFJob in :mod:`dtj.api.tfjob.form`. A job carries its
form, and whoever names a label, an object or an address asks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from pydantic import JsonValue, ValidationError

from dtj.api import kueue, names, rules
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.names import Label
from dtj.api.rule import Violation
from dtj.api.schema import generated_job_schema
from dtj.api.spec import JobSpec, ReplicaSpec, Role
from dtj.api.status import JobStatus

Reading: TypeAlias = tuple[JobSpec | None, tuple[str, ...]]
"""A spec; or None, and a line for each thing that keeps it from being read."""

EXIT_CODES_OF_ERRORS: Final = frozenset({1, 2, 126, 127, 128, 134, 139})
"""Exit codes that no restart can help: an error of the program or its arguments, no such command, abort, segfault."""


@dataclass(frozen=True)
class Form:
    """The form of a DistributedTrainingJob, and what another kind of job may do in another way."""

    chief: str = str(Role.CHIEF)
    """The task type of a chief as this job spells it: in names, labels and TF_CONFIG."""

    dynamic_workers: bool = False
    """Whether workers come and go while the others run on: each knows only itself and the parameter servers."""

    api_version: ClassVar[str] = names.API_VERSION
    kind: ClassVar[str] = names.KIND
    plural: ClassVar[str] = names.PLURAL

    selector: ClassVar[str] = Label.JOB_NAME
    """Label selector of everything that belongs to a job of this form."""

    job_label: ClassVar[str] = Label.JOB_NAME
    role_label: ClassVar[str] = Label.ROLE
    index_label: ClassVar[str] = Label.INDEX
    """The keys of the labels in which a pod names its job, its task type and its task index."""

    roles_field: ClassVar[str] = "replicaSpecs"
    """The field of a spec that holds the roles."""

    container: ClassVar[str] = names.MAIN_CONTAINER
    """The container that trains, where a template has several."""

    port_name: ClassVar[str] = "tf"
    exit_codes_of_errors: ClassVar[frozenset[int]] = EXIT_CODES_OF_ERRORS
    """The exit codes that restartPolicy ExitCode does not retry."""

    retried_exit_codes: ClassVar[str] = ""
    """Those that it retries, in words, where the others are too many to be listed; empty where they are not."""

    replica_services: ClassVar[bool] = False
    """Whether each replica has a Service, with the name of its first pod, in place of one Service of the job."""

    pod_defaults: ClassVar[bool] = True
    """Whether a pod gets what its template leaves open: security context, shared memory, subdomain, priority class,
    the launcher's port and files. Without them it gets what the replica must know, and a sidecar's own variables stay.
    """

    tf_config_environment: ClassVar[str] = ""
    """The ``environment`` of TF_CONFIG. Where it has one, the only replica of a job has no TF_CONFIG."""

    running_is_ready: ClassVar[bool] = False
    """Whether a pod that runs is ready where no kubelet has said whether it is."""

    kubelet_restarts: ClassVar[bool] = False
    """Whether users know restarts as the kubelet's, in the same pod. They are told what a new pod changes."""

    keeps_ended_pods: ClassVar[bool] = True
    """Whether the ended pods of replicas that started again stay, for their logs. Where they go, a resumed job's pods
    have the names of its first ones."""

    partial_admission: ClassVar[bool] = True
    """Whether a queue may let an elastic job begin with fewer workers than it asks for."""

    waits_for_evaluator: ClassVar[bool] = True
    """Whether the evaluator of a job that has succeeded may evaluate the last checkpoint before the job ends."""

    kubeflow_clean_up: ClassVar[bool] = False
    """Whether cleanPodPolicy means what Kubeflow's operator does: None keeps pods whose sidecars go on, and a limit
    that ends the job stops all pods under each policy."""

    kueue_integration: ClassVar[bool] = False
    """Whether Kueue itself has an integration for the jobs of this form: their labels are for it where our operator
    does not queue them, and it counts the pods that hold resources by the status."""

    scheduling_field: ClassVar[str] = "scheduling"
    """The field of runPolicy that says how the pods are scheduled together."""

    chart_section: ClassVar[str] = ""
    """The section of the chart's values that says for all jobs of this form what their manifests do not: the gang
    scheduler, the clean-up policy, the CRD. Empty where each manifest says it."""

    status_fields: ClassVar[frozenset[str]] = frozenset(
        field.alias or name for name, field in JobStatus.model_fields.items()
    )
    """The fields of a stored status that are ours; others are left alone."""

    recorded_in: ClassVar[str] = ""
    """The field of a stored status that holds the operator's record, beside the status of another operator that may
    have begun the job; empty where the whole status is the record."""

    def labels(self, job: str, uid: str) -> JsonObject:
        """The labels of everything that a job of this name owns."""
        return {
            Label.APP_NAME: "distributed-training-job",
            Label.APP_INSTANCE: job,
            Label.APP_PART_OF: job,
            Label.APP_MANAGED_BY: names.MANAGER,
            Label.JOB_NAME: job,
            Label.JOB_UID: uid,
        }

    def selects(self, labels: JsonObject) -> bool:
        """Whether :attr:`selector` finds an object with these labels."""
        terms = (term.partition("=") for term in self.selector.split(","))
        return all(key in labels and (not sign or labels[key] == value) for key, sign, value in terms)

    def replica_labels(self, role: Role, index: int, *, decides: bool) -> JsonObject:
        """The labels that a replica's pods have besides; ``decides`` is whether its success is the job's."""
        return {Label.APP_COMPONENT: str(role), Label.ROLE: str(role), Label.INDEX: str(index)}

    def word(self, role: Role) -> str:
        """A task type as this job spells it."""
        return self.chief if role is Role.CHIEF else str(role)

    def role_of(self, word: str) -> str:
        """The inverse of :meth:`word`, for a job of this kind."""
        return word

    def main_container(self, pod_spec: JsonValue) -> JsonObject:
        """The container that trains: the one of the form's name, or the first one."""
        containers = objects(dig(pod_spec, "containers"))
        named = [container for container in containers if container.get("name") == self.container]
        return next(iter(named or containers), {})

    def named_ports(self, spec: JobSpec, role: Role) -> dict[str, JsonValue]:
        """The numbers of the ports that the main container of a role names."""
        given = spec.replica_specs.get(role) or ReplicaSpec()
        main = self.main_container(dig(given.template or spec.template or {}, "spec"))
        named = (port for port in objects(main.get("ports")) if port.get("name"))
        return {text(port["name"]): port.get("containerPort") for port in named}

    def port(self, spec: JobSpec, role: Role) -> int:
        """The port of TensorFlow's server in the pods of a role."""
        return spec.port

    def left_alone(self, spec: JsonObject) -> bool:
        """Whether another controller runs a job with this spec."""
        return kueue.is_left_alone(spec)

    def read(self, spec: JsonObject, annotations: JsonObject) -> Reading:
        """Read a stored spec. Never raises."""
        try:
            return JobSpec.model_validate(spec), ()
        except ValidationError as error:
            return None, tuple(
                f"{'.'.join(['spec', *map(str, problem['loc'])])}: {problem['msg']}" for problem in error.errors()
            )

    def schema(self) -> JsonObject:
        """The schema of the jobs of this form. Shared: do not change it."""
        return generated_job_schema()

    def check(self, name: str, spec: JsonObject) -> tuple[Violation, ...]:
        """The rules that a job of this name breaks, by its stored spec."""
        return rules.check(name=name, spec=spec)

    def record(self, status: JsonObject) -> JobStatus:
        """What the operator recorded of a job with this stored status."""
        return JobStatus.from_object(status)

    def stored(self, namespace: str, name: str, before: JsonObject, record: JobStatus) -> JsonObject:
        """The status to store for ``record``, in place of ``before``."""
        return record.to_object()


DTJ: Final = Form()
