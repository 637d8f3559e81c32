"""The parts of a cluster that decide whether jobs run there. Reads what the user may read, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final

from dtj.api.job import parse_time
from dtj.api.json import JsonObject, dig, items_of, name_of, objects, text
from dtj.api.spec import Gang
from dtj.client.kubeflow import DEPLOYMENTS, Kubeflow, read_kubeflow
from dtj.client.overview import Part, all_of, one, part
from dtj.core.admission.scheduler_choice import APIS, unknown_versions
from dtj.core.observed import GangApi, GangsFound
from dtj.kube.client import KubeGateway
from dtj.kube.errors import ApiError, Forbidden
from dtj.kube.gateway import CONFIG_MAPS, EVENTS, JOBS, NODES, PODS
from dtj.kube.lease import LEASES, THROTTLED
from dtj.kube.observed import resource_of
from dtj.kube.rbac import (
    CRDS,
    FOR_GANGS,
    FOR_KUEUE,
    FOR_NETWORK_POLICIES,
    FOR_TFJOBS,
    LEADER_ELECTION_RULES,
    NAMESPACE_RULES,
    PolicyRule,
)

OPERATOR_LABEL: Final = "app.kubernetes.io/name=dtj-operator"
"""What the chart gives all objects of an operator."""

OF_A_PERSON: Final = (
    PolicyRule(JOBS, ("get", "list", "watch"), "to see jobs"),
    PolicyRule(JOBS, ("create",), "to submit them"),
    PolicyRule(JOBS, ("patch",), "to suspend and resume them"),
    PolicyRule(JOBS, ("patch",), "to scale them", subresource="scale"),
    PolicyRule(JOBS, ("delete",), "to delete them"),
    PolicyRule(PODS, ("list", "watch"), "to see replicas"),
    PolicyRule(PODS, ("get",), "to read logs", subresource="log"),
    PolicyRule(EVENTS, ("list",), "to see events"),
    PolicyRule(PODS, ("create",), "to open TensorBoard", subresource="portforward"),
)
"""The rights that the commands use, and for what."""

_LOOKS: Final = 4
"""How often a lease is looked at that seems old, a second apart: its holder renews it every 2 seconds."""

_FRESH_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Answered:
    """A right and whether it is there. ``verb`` is the one of the right's that is missing, where one is."""

    right: PolicyRule
    allowed: bool
    verb: str = ""


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """Who leads, when that was renewed by the holder's clock, and whether the lease changed while we looked.

    ``throttled``: whether the API server limits the calls of the holder.
    """

    holder: str
    renewed_at: datetime | None
    moved: bool
    throttled: bool = False

    def alive(self, now: datetime) -> bool:
        """Whether its holder works. Clocks differ: a lease that changes is alive whatever its time says."""
        age = (now - self.renewed_at).total_seconds() if self.renewed_at is not None else _FRESH_SECONDS
        return bool(self.holder) and (self.moved or abs(age) < _FRESH_SECONDS)


@dataclass(frozen=True, slots=True)
class Operator:
    """What is visible of a Deployment of the operator."""

    body: JsonObject
    lease: Part[LeaseSeen] = field(default_factory=Part)
    rights: Part[Answered] = field(default_factory=Part)
    profiles: Part[str] = field(default_factory=Part)
    """The file of accelerator profiles that it was given."""

    @property
    def namespace(self) -> str:
        return text(dig(self.body, "metadata", "namespace"))

    @property
    def name(self) -> str:
        return name_of(self.body)

    @property
    def version(self) -> str:
        """The version that its chart notes."""
        return text(dig(self.body, "metadata", "labels", "app.kubernetes.io/version"))

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces whose jobs it runs; none means all."""
        return self._options("--namespace")

    def serves(self, namespace: str) -> bool:
        """Whether it runs the jobs of a namespace."""
        return not self.namespaces or namespace in self.namespaces

    @property
    def runs_tfjobs(self) -> bool:
        """Whether it runs TFJobs of Kubeflow, too."""
        return bool(self._options("--tfjobs"))

    @property
    def rules(self) -> tuple[PolicyRule, ...]:
        """The rights that it needs in each namespace whose jobs it runs, those for schedulers aside."""
        policies = FOR_NETWORK_POLICIES if self._options("--network-policies") else ()
        return (*NAMESPACE_RULES, *policies, *(FOR_TFJOBS if self.runs_tfjobs else ()))

    @property
    def service_account(self) -> str:
        return text(dig(self.body, "spec", "template", "spec", "serviceAccountName"), "default")

    @property
    def lease_key(self) -> tuple[str, str] | None:
        """Namespace and name of its lease; None where it holds no election."""
        namespaces, names = self._options("--lease-namespace"), self._options("--lease-name")
        if not namespaces or not names:
            return None
        # As OLM installs it, the kubelet puts the pod's own namespace in the place of a variable.
        return (self.namespace if namespaces[0].startswith("$(") else namespaces[0], names[0])

    def _options(self, option: str) -> tuple[str, ...]:
        containers = objects(dig(self.body, "spec", "template", "spec", "containers"))
        given = [text(word) for container in containers for word in items_of(container.get("args"))]
        return tuple(word.partition("=")[2] for word in given if word.partition("=")[0] == option)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """All that was found. ``namespace`` is the one that the person works in."""

    server: str
    namespace: str
    at: datetime
    version: str
    served: bool
    crd: Part[JsonObject]
    operators: Part[Operator]
    rights: Part[Answered]
    nodes: Part[JsonObject]
    gangs: Part[GangApi]
    unknown_gangs: tuple[str, ...]
    """Each ``<group>/<version>`` of a scheduler of which the operator knows no version that is there."""

    refusal: Part[str]
    """What the API server says against a small job here, of which nothing is kept."""

    operator_namespace: str | None = None
    """The only one in which operators were looked for, if one was given."""

    kubeflow: Kubeflow | None = None
    """None where no operator runs TFJobs."""


async def inspect(gateway: KubeGateway, *, namespace: str, operator_namespace: str | None) -> Installation:
    """Look at everything. Raises ApiError where the API server does not answer at all."""
    version = await gateway.version()
    served = bool((await gateway.discover([JOBS])).served)
    operators, rights, crd, gangs, refusal, nodes = await asyncio.gather(
        _operators(gateway, namespace, operator_namespace),
        part(_answers(gateway, OF_A_PERSON, namespace=namespace)),
        part(one(gateway.get(CRDS, namespace=None, name=JOBS.crd))),
        part(one(_gangs(gateway))),
        _refusal(gateway, namespace, served=served),
        part(all_of(gateway.list(NODES, namespace=None))),
    )
    runs_tfjobs = any(operator.runs_tfjobs for operator in operators.items)
    return Installation(
        server=gateway.server,
        namespace=namespace,
        at=datetime.now(UTC),
        version=version,
        served=served,
        crd=crd,
        operators=operators,
        rights=rights,
        nodes=nodes,
        gangs=Part(tuple(api for found in gangs.items for api in found.apis), gangs.unread),
        unknown_gangs=tuple(version for found in gangs.items for version in found.unknown),
        refusal=refusal,
        operator_namespace=operator_namespace,
        kubeflow=await read_kubeflow(gateway) if runs_tfjobs else None,
    )


# -- operators -------------------------------------------------------------------------------------------------


async def _operators(gateway: KubeGateway, namespace: str, where: str | None) -> Part[Operator]:
    """The operators of the cluster, or of one namespace where that is given."""
    found = await part(all_of(gateway.list(DEPLOYMENTS, namespace=where, selector=OPERATOR_LABEL)))
    seen = await asyncio.gather(*(_seen(gateway, Operator(body), namespace) for body in found.items))
    return Part(tuple(seen), found.unread)


async def _seen(gateway: KubeGateway, operator: Operator, namespace: str) -> Operator:
    lease, rights, profiles = await asyncio.gather(
        part(_leases(gateway, operator.lease_key)),
        part(_rights_of(gateway, operator, namespace)),
        part(_profiles(gateway, operator)),
    )
    return Operator(operator.body, lease, rights, profiles)


async def _leases(gateway: KubeGateway, key: tuple[str, str] | None) -> tuple[LeaseSeen, ...]:
    """The lease, looked at again for as long as it seems that nobody renews it; nothing where there is no election."""
    if key is None:
        return ()
    first = await gateway.get(LEASES, namespace=key[0], name=key[1])
    seen = _lease_seen(first, moved=False)
    for _ in range(_LOOKS):
        if seen.alive(datetime.now(UTC)):
            break
        await asyncio.sleep(1.0)
        now = await gateway.get(LEASES, namespace=key[0], name=key[1])
        seen = _lease_seen(now, moved=dig(now, "spec") != dig(first, "spec"))
    return (seen,)


def _lease_seen(body: JsonObject, *, moved: bool) -> LeaseSeen:
    return LeaseSeen(
        holder=text(dig(body, "spec", "holderIdentity")),
        renewed_at=parse_time(dig(body, "spec", "renewTime")),
        moved=moved,
        throttled=dig(body, "metadata", "annotations", THROTTLED) is not None,
    )


async def _rights_of(gateway: KubeGateway, operator: Operator, namespace: str) -> tuple[Answered, ...]:
    """What the operator's service account may do, by asking the API server about it."""
    user = f"system:serviceaccount:{operator.namespace}:{operator.service_account}"
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{operator.namespace}", "system:authenticated")
    if not operator.serves(namespace):
        return ()
    found = tuple(api.gang for api in (await _gangs(gateway)).apis)
    gangs = tuple(right for gang in found for right in FOR_GANGS[gang])
    ask = partial(_answers, gateway, user=user, groups=groups)
    answers = await ask((*operator.rules, *gangs), namespace=namespace)
    if Gang.KUEUE in found:
        answers += await ask(FOR_KUEUE, namespace="")
    if (key := operator.lease_key) is not None:
        answers += await ask(LEADER_ELECTION_RULES, namespace=key[0], name=key[1])
    return answers


async def _profiles(gateway: KubeGateway, operator: Operator) -> tuple[str, ...]:
    listing = await all_of(gateway.list(CONFIG_MAPS, namespace=operator.namespace, selector=OPERATOR_LABEL))
    files = (dig(body, "data", "accelerator-profiles.yaml") for body in listing)
    return tuple(text(file) for file in files if file is not None)


# -- what else -------------------------------------------------------------------------------------------------


async def _answers(
    gateway: KubeGateway,
    rights: Iterable[PolicyRule],
    *,
    namespace: str,
    name: str = "",
    user: str = "",
    groups: Sequence[str] = (),
) -> tuple[Answered, ...]:
    """Whether each right is there, with each of its verbs."""

    async def answer(right: PolicyRule) -> Answered:
        for verb in right.verbs:
            attributes: JsonObject = {
                "namespace": namespace,
                "verb": verb,
                "group": right.group,
                "resource": right.resource.plural,
                "subresource": right.subresource,
                # What does not exist yet has no name to restrict the right to.
                "name": name if verb != "create" else "",
            }
            if not await gateway.review(attributes, user=user, groups=groups):
                return Answered(right, allowed=False, verb=verb)
        return Answered(right, allowed=True)

    return tuple(await asyncio.gather(*map(answer, rights)))


async def _gangs(gateway: KubeGateway) -> GangsFound:
    discovery = await gateway.discover([resource_of(api) for api in APIS])
    there = tuple(api for api in APIS if resource_of(api) in discovery.served)
    return GangsFound(there, datetime.now(UTC), unknown=unknown_versions(discovery.versions))


async def _refusal(gateway: KubeGateway, namespace: str, *, served: bool) -> Part[str]:
    """Why the API server would refuse a small job; nothing if it would take it."""
    if not served:
        return Part(unread="jobs are not known to the API server")
    body: JsonObject = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"generateName": "dtj-doctor-"},
        "spec": {
            "strategy": "OneDevice",
            "template": {"spec": {"containers": [{"name": "trainer", "image": "example/trainer:1"}]}},
            "replicaSpecs": {"worker": {"replicas": 1}},
        },
    }
    try:
        await gateway.create(JOBS, namespace=namespace, body=body, dry_run=True)
    except Forbidden as error:
        # Another check reports a missing right; admission plugins say 403, too.
        return Part(unread=error.message) if "cannot create resource" in error.message else Part((error.message,))
    except ApiError as error:
        return Part((error.message,))
    return Part()
