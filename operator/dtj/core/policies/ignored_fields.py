"""What the manifest asks for and the job does not get: one event names it when the job starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dtj.api import kueue, quantities
from dtj.api.json import dig, fields_of
from dtj.api.names import Reason
from dtj.api.spec import Gang, Role
from dtj.core.actions import Emit
from dtj.core.admission import tfjobs
from dtj.core.context import JobContext
from dtj.core.manifests import accelerators
from dtj.core.on_out_of_memory import resources_of

_READ: Final[dict[Gang, frozenset[str]]] = {
    Gang.KUEUE: frozenset({"queue"}),
    Gang.VOLCANO: frozenset({"queue", "minAvailable", "minResources", "priorityClassName"}),
    Gang.COSCHEDULING: frozenset({"minAvailable", "minResources", "timeoutSeconds"}),
    Gang.NATIVE: frozenset({"minAvailable", "priorityClassName"}),
}
"""What each scheduler reads of what a job says of its scheduling."""


def told(context: JobContext) -> tuple[Emit, ...]:
    """The event; none if the job gets all that it asks for."""
    found = (*_scheduling(context), *_success_policy(context), *_templates(context), *_accelerators(context))
    return (Emit("Warning", Reason.FIELD_IGNORED, "; ".join(found)),) if found else ()


def _scheduling(context: JobContext) -> Iterator[str]:
    gang = context.gang.gang if context.gang is not None else Gang.NONE
    ignored = [each.place for each in tfjobs.asked(context.job) if not _is_obeyed(context, gang, each)]
    if ignored and gang is Gang.NONE:
        section = context.job.form.chart_section
        remedy = f": set {section}.gangScheduler of the operator's chart" if section else ""
        yield f"no effect: {', '.join(ignored)}, because the pods are scheduled one by one{remedy}"
    elif ignored:
        yield f"no effect: {', '.join(ignored)}, which {gang} does not read"


def _is_obeyed(context: JobContext, gang: Gang, asked: tfjobs.Asked) -> bool:
    """Whether the scheduler reads a field. The pods of a DistributedTrainingJob have its priority class in any case;
    that of a TFJob in a queue is read by Kueue's own integration."""
    form = context.job.form
    if asked.field == "priorityClassName" and (
        form.pod_defaults or (form.kueue_integration and gang is Gang.NONE and kueue.QUEUE in context.job.labels)
    ):
        return True
    if gang is Gang.KUEUE and asked.field == "minAvailable":
        pods = sum(context.spec.replicas(role) for role in context.spec.roles())
        return isinstance(asked.value, int) and asked.value >= pods
    if gang is Gang.KUEUE and asked.field == "queue":
        return asked.value == context.spec.scheduling.queue
    return asked.field in _READ.get(gang, frozenset())


def _success_policy(context: JobContext) -> Iterator[str]:
    """Of a TFJob with a chief, which alone decides."""
    asked = context.job.raw_spec.get("successPolicy")
    if asked and asked != context.spec.run_policy.success_policy:
        chief = context.job.form.word(Role.CHIEF).capitalize()
        yield f"no effect: spec.successPolicy {asked}, because the job ends with its {chief}"


def _templates(context: JobContext) -> Iterator[str]:
    """What is another in each pod than in its template."""
    form, raw = context.job.form, context.job.raw_spec
    roles = {
        f"spec.{form.roles_field}.{name}": fields_of(role)
        for name, role in fields_of(raw.get(form.roles_field)).items()
    }
    for place, owner in {"spec": raw, **roles}.items():
        template = fields_of(owner.get("template"))
        for field in ("hostname", *(("subdomain",) if form.pod_defaults else ())):
            if dig(template, "spec", field):
                yield f"no effect: {place}.template.spec.{field}, which is the name of the replica"
        if dig(template, "metadata", "finalizers"):
            yield f"no effect: {place}.template.metadata.finalizers, which the operator does not set"


def _accelerators(context: JobContext) -> Iterator[str]:
    """What a container asks for of the resources of which its accelerator says how many."""
    for role in context.spec.roles():
        needs = accelerators.needs(context.spec, role, context.platform)
        if needs is None:
            continue
        own = resources_of(context.job, context.spec, role)
        counted = {needs.profile.resource: str(needs.count)} if needs.count is not None else {}
        for resource, given in {**needs.profile.resources, **counted}.items():
            asked = (dig(own, kind, resource) for kind in ("limits", "requests"))
            said = [amount for amount in asked if amount is not None]
            other = [amount for amount in said if quantities.parse(amount) != quantities.parse(given)]
            if other:
                yield (
                    f"no effect: {resource}: {other[0]} in the resources of {role}, because "
                    f"{accelerators.accelerator_field(context.spec, role)} gives each of its pods {given}"
                )
