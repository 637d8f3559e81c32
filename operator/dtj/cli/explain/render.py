"""What would be created for a job, as text: a simulation goes in, lines come out. Pure.

Who starts again, and who decides, is asked of the functions by which the planner decides.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from pydantic import JsonValue

from dtj.api.form import DTJ, EXIT_CODES_OF_ERRORS, Form
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, fields_of, items_of, name_of, objects, text
from dtj.api.kueue import is_dispatched, other_controller, priority_class
from dtj.api.names import Annotation, Env, Label
from dtj.api.spec import COLLECTIVE, CleanPodPolicy, Gang, JobSpec, ReplicaSpec, RestartPolicy, Role, as_role
from dtj.api.status import JobStatus
from dtj.api.tfjob import names as tfjob
from dtj.api.tfjob.form import TFJOB
from dtj.api.tfjob.read import NO_LIMIT
from dtj.cli.common.console import Console, Text
from dtj.cli.common.formatting import as_json, as_yaml, columns, counted, listed
from dtj.cli.common.terminal import Exit, say, write
from dtj.cli.explain.simulation import UID, Simulation, simulate
from dtj.client.checks import Manifest, check_documents
from dtj.client.manifest_files import Document
from dtj.core.observed import Phase, Pod, Termination
from dtj.core.platform import Platform
from dtj.core.pod_failure import LATEST, PodEnd, PodFailureClass
from dtj.core.pod_state import main_container_of
from dtj.core.policies.budgets import restart_denied
from dtj.core.policies.restart_scope import requires_full_restart, requires_predecessor_gone
from dtj.core.replicas import Replica, deciding_replicas
from dtj.core.world import has_world

_SHOWN: Final = 6
"""Most pods of a role that are listed one by one."""

_FURTHER: Final = " " * 6

_LOSS_EXIT: Final = 3
"""An exit code that stands for errors in general: none that is known to be hopeless."""

Row = tuple[str, ...]


def explanation(
    simulation: Simulation, spec: JobSpec, *, role: Role | None = None, width: int | None = None
) -> tuple[Text, ...]:
    """All of it in titled sections; with ``role``, what concerns pods is shown for that role alone.

    Lines that are longer than ``width`` go on below, indented; words, and TF_CONFIG is one, stay whole to be copied.
    """
    roles, form = tuple(one for one in spec.roles() if role in (None, one)), simulation.job.form
    lines = [_headline(simulation, spec)]
    for title, body in (
        ("Pods", _pods(simulation, roles)),
        *((f"Each {one}", _container(_pods_of(simulation, one)[0])) for one in roles if _pods_of(simulation, one)),
        *((f"Pod {name_of(pod)}", _container(pod)) for pod in _next_to(simulation)),
        *_shared(simulation),
        *_environments(simulation, roles, every=role is not None),
        ("When a pod is lost", [*columns(_losses(spec, roles, form)), *_remarks(spec, simulation.job)]),
        ("The end", _endings(spec, form)),
    ):
        lines += [Text(""), Text(title, style="bold")]
        lines += [Text(part, limit=None) for line in body for part in _fitted(f"  {line}".rstrip(), width)]
    return tuple(lines)


def _fitted(line: str, width: int | None) -> list[str]:
    if width is None or len(line) <= width:
        return [line]
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=_FURTHER,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )


def _headline(simulation: Simulation, spec: JobSpec) -> Text:
    job = simulation.job
    counts = [counted(spec.replicas(role), str(role)) for role in spec.roles()]
    who = listed([*counts, counted(spec.spares, "spare")] if spec.spares else counts)
    return Text(f"{job.name}: {spec.strategy} with {who}, in namespace {job.namespace}")


# -- pods ----------------------------------------------------------------------------------------------------


def _pods(simulation: Simulation, roles: Sequence[Role]) -> list[str]:
    rows: list[Row] = [("NAME", "ROLE", "INDEX", "ADDRESS")]
    for role in roles:
        pods = _pods_of(simulation, role)
        rows += map(_pod_row, _few(pods))
        if len(pods) > _SHOWN:
            rows[-1:] = [(f"… {len(pods) - _SHOWN + 1} more …",), rows[-1]]
    rows += map(_pod_row, _next_to(simulation))
    return [*columns(rows), *_host_ports([pod for role in roles for pod in _pods_of(simulation, role)])]


def _host_ports(pods: Sequence[JsonObject]) -> Iterator[str]:
    """What pods in the network of their nodes take there: Kubernetes makes each port of theirs one of the node."""
    there = [pod for pod in pods if dig(pod, "spec", "hostNetwork") is True]
    containers = (container for pod in there for container in objects(dig(pod, "spec", "containers")))
    ports = sorted({str(port.get("containerPort")) for each in containers for port in objects(each.get("ports"))})
    if there:
        yield (
            f"hostNetwork: each pod takes the ports {listed(ports)} of its node, so no two of these pods share a node: "
            f"{counted(len(there), 'node')} with these ports free."
        )


def _few(pods: Sequence[JsonObject]) -> Sequence[JsonObject]:
    """All, or the first ones and the last."""
    return pods if len(pods) <= _SHOWN else (*pods[: _SHOWN - 2], pods[-1])


def _pod_row(pod: JsonObject) -> Row:
    name = name_of(pod)
    return (name, _role(pod), _index(pod), _address(pod))


def _address(pod: JsonObject) -> str:
    """Where its TensorFlow server is reached; nothing for a pod that has none."""
    host, subdomain = (text(dig(pod, "spec", key)) for key in ("hostname", "subdomain"))
    ports = {text(port.get("name")): port.get("containerPort") for port in objects(main_container_of(pod).get("ports"))}
    port = ports.get(_form(pod).port_name)
    if not host or port is None:
        return ""
    name = f"{host}.{subdomain}" if subdomain else host
    return f"{name}.{text(dig(pod, 'metadata', 'namespace'))}.svc:{port}"


def _container(pod: JsonObject) -> list[str]:
    """What all pods of a role have in common."""
    spec, main = dig(pod, "spec"), main_container_of(pod)
    command = _words(main.get("command")) or "the image's own"
    rows: list[Row] = [("image", text(main.get("image")) or "none: the operator's default"), ("command", command)]
    others = [c for c in objects(dig(spec, "containers")) if c.get("name") != main.get("name")]
    facts = (
        ("arguments", _words(main.get("args"))),
        ("resources", _resources(main)),
        ("node labels", _pairs(dig(spec, "nodeSelector"))),
        ("tolerates", ", ".join(text(one.get("key")) or "all" for one in objects(dig(spec, "tolerations")))),
        ("affinity", ", ".join(fields_of(dig(spec, "affinity")))),
        ("scheduler", text(dig(spec, "schedulerName"))),
        ("priority", text(dig(spec, "priorityClassName"))),
        ("account", text(dig(spec, "serviceAccountName"))),
        ("labels", _pairs(_of_the_user(dig(pod, "metadata", "labels")))),
        ("annotations", _pairs(_of_the_user(dig(pod, "metadata", "annotations")))),
        ("volumes", ", ".join(map(_mount, objects(main.get("volumeMounts"))))),
        ("next to it", ", ".join(text(c.get("name")) for c in others)),
        ("before it", ", ".join(text(c.get("name")) for c in objects(dig(spec, "initContainers")))),
    )
    return columns([*rows, *((name, value) for name, value in facts if value)])


_OUR_KEYS: Final = frozenset(
    value for kind in (Label, Annotation, tfjob.Label) for name, value in vars(kind).items() if name.isupper()
)


def _of_the_user(labels: JsonValue) -> JsonObject:
    """Labels or annotations without those that the operator sets."""
    return {key: value for key, value in fields_of(labels).items() if key not in _OUR_KEYS}


def _resources(container: JsonObject) -> str:
    """Requests and limits, each thing once where both are the same."""
    asked, least = (fields_of(dig(container, "resources", kind)) for kind in ("requests", "limits"))
    words = [f"{name} {amount}" for name, amount in {**least, **asked}.items()]
    words += [f"at most {name} {amount}" for name, amount in least.items() if asked.get(name, amount) != amount]
    return ", ".join(words)


def _mount(mount: JsonObject) -> str:
    return f"{text(mount.get('name'))} at {text(mount.get('mountPath'))}"


# -- what pods share -----------------------------------------------------------------------------------------


def _shared(simulation: Simulation) -> Iterator[tuple[str, list[str]]]:
    for service in _few(simulation.of_kind("Service")):
        ports = (f"{text(p.get('name'))} {p.get('port')}" for p in objects(dig(service, "spec", "ports")))
        rows = [
            ("kind", "headless" if dig(service, "spec", "clusterIP") == "None" else "with its own address"),
            ("ports", ", ".join(ports)),
            ("selects", _pairs(dig(service, "spec", "selector")).replace(UID, "<that of the job>")),
        ]
        yield f"Service {name_of(service)}", columns(rows)
    for claim in simulation.of_kind("PersistentVolumeClaim"):
        rows = [
            ("size", str(dig(claim, "spec", "resources", "requests", "storage"))),
            ("access", ", ".join(map(str, items_of(dig(claim, "spec", "accessModes"))))),
            ("class", text(dig(claim, "spec", "storageClassName")) or "the cluster's default"),
        ]
        yield f"PersistentVolumeClaim {name_of(claim)}", columns(rows)
    if simulation.gang is not None:
        for gang in simulation.of_kind(simulation.gang.kind):
            rows = [(key, _plain(value)) for key, value in fields_of(dig(gang, "spec")).items() if key != "podSets"]
            rows += [("pods", _pod_sets(gang))] if dig(gang, "spec", "podSets") else []
            title = f"{simulation.gang.kind} {name_of(gang)} ({simulation.gang.api_version}, {simulation.gang.gang})"
            yield title, columns(rows)


def _pod_sets(gang: JsonObject) -> str:
    return ", ".join(counted(int(str(s["count"])), text(s["name"])) for s in objects(dig(gang, "spec", "podSets")))


# -- environment ---------------------------------------------------------------------------------------------


def _environments(simulation: Simulation, roles: Sequence[Role], *, every: bool) -> Iterator[tuple[str, list[str]]]:
    """TF_CONFIG and the other variables of ours: of the first replica of each role, or of ``every`` one."""
    shown = {
        f"{_role(pod)}-{_index(pod)}": _variables(pod)
        for role in roles
        for pod in _pods_of(simulation, role)[: _SHOWN if every else 1]
    }
    alone = "none: a TFJob of one replica has no cluster"
    yield "TF_CONFIG", columns((replica, each.get(Env.TF_CONFIG, alone)) for replica, each in shown.items())
    ours = dict.fromkeys(name for variables in shown.values() for name in variables if name in _OURS)
    yield "Environment", columns((name, _value(name, shown)) for name in ours if name != Env.TF_CONFIG)


def _variables(pod: JsonObject) -> dict[str, str]:
    return {
        text(variable.get("name")): text(variable.get("value")) or _source_of(variable)
        for variable in objects(main_container_of(pod).get("env"))
    }


def _source_of(variable: JsonObject) -> str:
    """The ConfigMap that a variable of ours comes from; empty for other sources."""
    config_map = text(dig(variable, "valueFrom", "configMapKeyRef", "name"))
    return f"from ConfigMap {config_map}" if config_map else ""


def _value(name: str, shown: dict[str, dict[str, str]]) -> str:
    """The value of a variable: one value for all replicas, or each value with the replicas that have it."""
    values = {replica: variables[name] for replica, variables in shown.items() if name in variables}
    if len(set(values.values())) == 1 and len(values) == len(shown):
        return next(iter(values.values()))
    return ", ".join(f"{value} in {replica}" for replica, value in values.items())


_OURS: Final = frozenset(value for name, value in vars(Env).items() if name.isupper())

"""The variables that the operator sets."""


# -- what happens then ---------------------------------------------------------------------------------------


def _losses(spec: JobSpec, roles: Sequence[Role], form: Form) -> Iterator[Row]:
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
    if job.form.foreign:
        yield "Restarts begin at step 0, unless the script itself saves checkpoints; an emptyDir is empty then."
    elif spec.checkpoint is None:
        yield "spec.checkpoint is not set: restarts begin at step 0, unless the script itself saves checkpoints."
    elif (in_memory := spec.checkpoint.in_memory) is not None:
        yield (
            f"Each chief and worker keeps 2 copies of its state in memory, of at most {in_memory.size_limit} in all. "
            "They count against the memory limit of its container."
        )
        if in_memory.every_steps is None:
            yield (
                "The trainer measures the first ones, and then leaves so many steps between two that copies cost at "
                "most 1 % of the training; its log says how many."
            )
        else:
            yield f"It copies after every {counted(in_memory.every_steps, 'step')}."
        if spec.checkpoint.directory is None:
            yield "Only memory holds the state: if all pods are lost, or the job is suspended, it begins at step 0."


def _after_error(spec: JobSpec, role: Role, form: Form) -> str:
    policy = (spec.replica_specs.get(role) or ReplicaSpec()).restart_policy
    if form.foreign and policy is RestartPolicy.EXIT_CODE:
        return f"after exit code 42 or from 128 on, {_restart(spec, role, PodFailureClass.USER_ERROR)}; else it fails"
    if restart_denied(spec, JobStatus(), _ended(role, PodFailureClass.USER_ERROR)) is not None:
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


def _endings(spec: JobSpec, form: Form) -> list[str]:
    """When the job has succeeded, and what is left of it then."""
    asked = "clean_pod_policy" in spec.run_policy.model_fields_set or not form.foreign
    who = sorted(deciding_replicas(spec))
    policy = spec.run_policy
    kept = {
        "Running": "Pods that still run are stopped; those that have ended are kept for their logs.",
        "All": "All pods are deleted.",
        "None": "No pods are deleted; running pods continue.",
    }[policy.clean_pod_policy if asked else CleanPodPolicy.NONE]
    completed = f"{who[0].hostname} has" if len(who) == 1 else f"all {len(who)} training replicas have"
    ttl = policy.ttl_seconds_after_finished
    return [
        f"The job succeeds when {completed} completed.",
        kept,
        "The job is kept until you delete it." if ttl is None else f"The job is deleted {ttl} s after its end.",
    ]


# -- text ----------------------------------------------------------------------------------------------------


def _plain(value: object) -> str:
    """A value in a few words."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value)) or "none"
    return str(value)


def _words(value: JsonValue) -> str:
    return shlex.join(map(str, items_of(value)))


def _pairs(value: JsonValue) -> str:
    return ", ".join(f"{key}={inner}" for key, inner in fields_of(value).items())


def _pods_of(simulation: Simulation, role: Role) -> list[JsonObject]:
    return [pod for pod in simulation.pods if _role(pod) == role]


def _next_to(simulation: Simulation) -> list[JsonObject]:
    """The pods that are no replica's."""
    return [pod for pod in simulation.pods if as_role(_role(pod)) is None]


def _form(pod: JsonObject) -> Form:
    """The form of the job that a pod belongs to."""
    return TFJOB if _label(pod, TFJOB.role_label) else DTJ


def _role(pod: JsonObject) -> str:
    form = _form(pod)
    return form.role_of(_label(pod, form.role_label))


def _index(pod: JsonObject) -> str:
    return _label(pod, _form(pod).index_label)


def _label(pod: JsonObject, label: str) -> str:
    return text(dig(pod, "metadata", "labels", label))


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
    if output == "table":
        _print_tables(shown, role)
    else:
        bodies = [body for _, simulation in shown for body in simulation.objects if _is_wanted(body, role)]
        write(_UID_WORDS + as_yaml(bodies) if output == "yaml" else as_json(bodies))
    return Exit.OK


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


def _print_tables(shown: list[tuple[Manifest, Simulation]], role: Role | None) -> None:
    console = Console(highlight=False)
    for number, (item, simulation) in enumerate(shown):
        if number:
            console.print()
        if simulation.objects:
            width = console.width if console.is_terminal else None
            for line in explanation(simulation, item.spec, role=role, width=width):
                console.print(line, soft_wrap=True)


def _is_wanted(body: JsonObject, role: Role | None) -> bool:
    """All but the pods of other roles."""
    return role is None or body["kind"] != "Pod" or _role(body) == role
