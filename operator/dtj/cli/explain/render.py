"""What would be created for a job, as objects, and what follows when one of its pods is lost. Pure.

Who starts again, and who decides, is asked of the functions by which the planner decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from dtj.api.form import EXIT_CODES_OF_ERRORS, Form
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, text
from dtj.api.kueue import is_dispatched, other_controller, priority_class
from dtj.api.spec import COLLECTIVE, Gang, JobSpec, ReplicaSpec, RestartPolicy, Role
from dtj.api.status import JobStatus
from dtj.api.tfjob.read import NO_LIMIT
from dtj.cli.common.formatting import as_json, as_yaml, columns, counted, listed
from dtj.cli.common.terminal import Exit, say, write
from dtj.cli.explain.simulation import UID, Simulation, simulate
from dtj.client.checks import Manifest, check_documents
from dtj.client.manifest_files import Document
from dtj.core.membership import has_world
from dtj.core.observed import Phase, Pod, Termination
from dtj.core.platform import Platform
from dtj.core.pod_failure import LATEST, PodEnd, PodFailureClass
from dtj.core.policies.budgets import restart_denied
from dtj.core.policies.restart_scope import requires_full_restart, requires_predecessor_gone
from dtj.core.replicas import Replica, roles_that_may_fail

_LOSS_EXIT: Final = 3
"""An exit code that stands for errors in general: none that is known to be hopeless."""


def when_a_pod_is_lost(job: Job, spec: JobSpec, *, role: Role | None = None) -> list[str]:
    """What follows for each role, or for ``role`` alone, and what of the job's state is there then."""
    roles = [one for one in spec.roles() if role in (None, one)]
    return [*columns(_losses(spec, roles, job.form)), *_remarks(spec, job)]


def _losses(spec: JobSpec, roles: Sequence[Role], form: Form) -> Iterator[tuple[str, str, str]]:
    """For each role: what follows an error of its own, and what follows when it is taken away."""
    for role in roles:
        yield str(role), "error", _after_error(spec, role, form)
        yield "", "disruption", _after_disruption(spec, role)


def _remarks(spec: JobSpec, job: Job) -> Iterator[str]:
    yield "The infrastructure causes a disruption: a node is lost or drained, or a pod is preempted."
    if spec.elastic is not None and spec.strategy in COLLECTIVE and has_world(job, spec):
        least = counted(spec.elastic.min_replicas, "worker")
        yield (
            "With dtj-launch, a lost worker starts again alone. The others go on without it after "
            f"{spec.elastic.shrink_after_seconds} s, if {least} or more are left."
        )
        if spec.spares:
            yield (
                f"{counted(spec.spares, 'spare')} more than the workers above: such a pod has imported all and waits. "
                "It takes a lost worker's place at once, whose next pod becomes a spare."
            )
    if job.form.kubelet_restarts:
        yield "Restarts begin at step 0, unless the script itself saves checkpoints; an emptyDir is empty then."
    elif spec.checkpoint is None:
        yield "spec.checkpoint is not set: restarts begin at step 0, unless the script itself saves checkpoints."
    elif spec.checkpoint.in_memory is not None and spec.checkpoint.directory is None:
        yield "Only memory holds the state: if all pods are lost, or the job is suspended, it begins at step 0."


def _after_error(spec: JobSpec, role: Role, form: Form) -> str:
    policy = (spec.replica_specs.get(role) or ReplicaSpec()).restart_policy
    if form.retried_exit_codes and policy is RestartPolicy.EXIT_CODE:
        again = _restart(spec, role, PodFailureClass.USER_ERROR)
        return f"after exit code {form.retried_exit_codes}, {again}; else it fails"
    if restart_denied(spec, JobStatus(), _ended(role, PodFailureClass.USER_ERROR)) is not None:
        if role in roles_that_may_fail(spec, form):
            return "the others go on; the job fails when none is left that trains"
        return "the job fails"
    limit = spec.run_policy.backoff_limit
    often = "without limit" if limit >= NO_LIMIT else f"at most {counted(limit, 'time')} in all"
    again = f"{_restart(spec, role, PodFailureClass.USER_ERROR)}, {often}"
    codes = spec.run_policy.exit_codes
    fatal = set(codes.fatal) if codes is not None else set()
    if policy is RestartPolicy.EXIT_CODE:
        fatal |= EXIT_CODES_OF_ERRORS - set(codes.retryable if codes is not None else ())
    return again + (f"; after exit code {listed(map(str, sorted(fatal)))} the job fails" if fatal else "")


def _after_disruption(spec: JobSpec, role: Role) -> str:
    limit = spec.run_policy.disruption_limit
    if limit == 0:
        return "the job fails"
    often = "without limit" if limit is None else f"at most {counted(limit, 'time')} in all"
    return f"{_restart(spec, role, PodFailureClass.DISRUPTION)}, {often}"


def _restart(spec: JobSpec, role: Role, failure_class: PodFailureClass) -> str:
    if requires_full_restart(spec, _ended(role, failure_class)):
        return "all start again from the last checkpoint"
    if requires_predecessor_gone(spec, Replica(role, 0)):
        return "it starts again alone, once its previous pod has certainly ended"
    return "it starts again alone"


def _ended(role: Role, failure_class: PodFailureClass) -> PodEnd:
    """A replica that has just ended so."""
    error = Termination(exit_code=_LOSS_EXIT) if failure_class is PodFailureClass.USER_ERROR else None
    pod = Pod("", "", "", "", "", str(role), 0, phase=Phase.FAILED, termination=error)
    return PodEnd(pod, failure_class, LATEST)


# -- what is printed ----------------------------------------------------------------------------------------------

_UID_WORDS: Final = f"# UID {UID} stands for the job's own UID, which the API server assigns.\n"


def show_objects(
    found: Iterable[Document | str], *, output: str, role: Role | None, namespace: str, platform: Platform
) -> int:
    """Print what would be created for the jobs of these documents. Returns the exit code."""
    checked = check_documents(found, platform, tfjobs=True)
    for line in (*checked.notes, *checked.problems):
        say(line, err=True)
    if checked.problems:
        return Exit.USAGE
    for item in checked.manifests:
        if role is not None and item.spec.replicas(role) == 0:
            roles = ", ".join(item.spec.roles())
            say(f"{item.document.title}: --role: the job has no {role}; it has {roles}", err=True)
            return Exit.USAGE
    shown = [
        (item, simulate(item.body, platform, namespace=namespace, now=datetime.now(UTC))) for item in checked.manifests
    ]
    for item, simulation in shown:
        for line in _caveats(item, simulation):
            say(line, err=True)
    if output == "json":
        write(as_json([body for item, simulation in shown for body in _wanted(item, simulation, role)]))
    elif any(simulation.objects for _, simulation in shown):
        write(_UID_WORDS)
        for item, simulation in shown:
            if simulation.objects:
                write("---\n" + as_yaml(_wanted(item, simulation, role)))
                _say_losses(simulation, item.spec, role)
    return Exit.OK


def _say_losses(simulation: Simulation, spec: JobSpec, role: Role | None) -> None:
    """Below the objects, as comments: of many pods, the last lines are seen first."""
    job = simulation.job
    say(f"# When a pod of {job.name} ({spec.strategy}, namespace {job.namespace}) is lost:")
    for line in when_a_pod_is_lost(job, spec, role=role):
        say(f"#   {line}")


def _caveats(manifest: Manifest, simulation: Simulation) -> list[str]:
    """How a cluster may differ from the simulation, in one line each."""
    policy = manifest.spec.run_policy
    caveats = []
    manager = other_controller(manifest.job.raw_spec)
    if is_dispatched(manifest.job.raw_spec):
        caveats.append(
            f"managedBy is {manager}: our operator creates the Workload here, and the rest where MultiKueue runs it"
        )
    elif manager is not None or manifest.job.form.left_alone(manifest.job.raw_spec):
        manager = manager or text(dig(manifest.job.raw_spec, "runPolicy", "managedBy"))
        caveats.append(f"managedBy is {manager}: our operator creates nothing for this job")
    elif policy.suspend:
        caveats.append("runPolicy.suspend is true: nothing is created until it is false; then this")
    if simulation.gang is not None:
        how = "which your cluster may lack" if policy.scheduling and policy.scheduling.gang is not Gang.AUTO else ""
        words = how or "the first choice of gang Auto: your cluster may have another one, or none"
        caveats.append(f"runPolicy.scheduling: as on a cluster with {simulation.gang.gang}, {words}")
        if simulation.gang.gang is Gang.KUEUE and (name := priority_class(manifest.job.labels)):
            caveats.append(f"the cluster has the value of WorkloadPriorityClass {name}; spec.priority is 0 here")
    return [f"{manifest.document.title}: {line}" for line in caveats]


def _wanted(manifest: Manifest, simulation: Simulation, role: Role | None) -> list[JsonObject]:
    """All objects but the pods of other roles."""
    form = manifest.job.form
    return [
        body
        for body in simulation.objects
        if role is None
        or body["kind"] != "Pod"
        or form.role_of(text(dig(body, "metadata", "labels", form.role_label))) == role
    ]
