"""From a TFJob of Kubeflow to a DistributedTrainingJob: what has a counterpart is converted, the rest is noted. Pure.

Sources: ``pkg/apis/kubeflow.org/v1/{tensorflow,common}_{types,defaults,validation}.go`` of kubeflow/training-operator,
and the shape before it, with the run policy's fields next to the roles (``kubeflow.org/v1beta1`` and ``v1beta2``).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from dtj.api import names
from dtj.api.form import EXIT_CODES_OF_ERRORS
from dtj.api.json import JsonObject, dig, text
from dtj.api.kueue import QUEUE
from dtj.api.printable import one_line
from dtj.api.spec import ELASTIC, Gang, RestartPolicy, Role, RunPolicy, Strategy, SuccessPolicy
from dtj.api.tfjob.names import CONTROLLER, GROUP, KIND, MASTER
from dtj.api.tfjob.read import ROLES, SAME
from dtj.api.validation import validate
from dtj.cli.common.formatting import as_yaml, counted, listed
from dtj.cli.common.terminal import say
from dtj.cli.convert.tfjob_pods import NotConvertible, Pods, mapping
from dtj.client.checks import is_tfjob
from dtj.client.manifest_files import STDIN, Document, read
from dtj.core.replicas import TRAINING_ROLES

_RUN_POLICY: Final = (
    "cleanPodPolicy",
    "ttlSecondsAfterFinished",
    "activeDeadlineSeconds",
    "backoffLimit",
    "schedulingPolicy",
)
"""What stood next to tfReplicaSpecs before there was a runPolicy."""

_DEFAULT_BACKOFF: Final = RunPolicy().backoff_limit

_CHOICE: Final = "spec.strategy"
"""What a person should look at first: all else follows from it."""

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_STORED: Final = (
    "creationTimestamp",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)
"""What a server adds to metadata, which means nothing in a new manifest."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A job, and what a person should look at, each ``field: what``; most important first."""

    body: JsonObject
    notes: tuple[str, ...]


def convert(body: JsonObject, *, strategy: Strategy | None = None) -> Conversion:
    """The job that does what a TFJob does, under ``strategy`` or the one that its roles suggest.

    Raises NotConvertible where it is none that Kubeflow would run.
    """
    return _Converter().job(copy.deepcopy(body), strategy)


class _Converter:
    """What is understood is taken out of the TFJob; what is left over in the end is noted."""

    def __init__(self) -> None:
        self._notes: list[str] = []

    def job(self, body: JsonObject, wanted: Strategy | None) -> Conversion:
        spec = mapping(body.get("spec"), "spec")
        if "replicaSpecs" in spec:
            raise NotConvertible("spec.replicaSpecs: a TFJob of v1alpha1: convert it to kubeflow.org/v1 first")
        before: JsonObject = {key: spec.pop(key) for key in _RUN_POLICY if key in spec}
        policy: JsonObject = {**before, **mapping(spec.pop("runPolicy", {}) or {}, "spec.runPolicy")}
        metadata, queue = self._metadata(mapping(body.get("metadata"), "metadata"))
        pods = Pods(self._notes)
        roles = self._roles(mapping(spec.pop("tfReplicaSpecs", None), "spec.tfReplicaSpecs"), pods)
        strategy = wanted or _suggested(roles, pods)
        self._say_strategy(strategy, wanted, roles)
        self._say_new_behaviour(roles, policy, pods)
        made: JsonObject = {
            "strategy": str(strategy),
            "replicaSpecs": pods.role_specs(roles),
            **(self._elastic(strategy, roles) if spec.pop("enableDynamicWorker", False) else {}),
            **pods.port(),
            **self._run_policy(policy, roles, queue, spec.pop("successPolicy", "")),
            "template": pods.shared,
        }
        self._left_over(spec, "spec")
        whole: JsonObject = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": metadata,
            "spec": made,
        }
        broken = [f"{violation} (dtj validate rejects this)" for violation in validate(whole)]
        self._notes.sort(key=lambda note: not note.startswith(_CHOICE))
        return Conversion(whole, tuple(dict.fromkeys([*broken, *self._notes])))

    def _note(self, field: str, words: str) -> None:
        self._notes.append(f"{field}: {words}")

    def _left_over(self, fields: Mapping[str, JsonValue], path: str) -> None:
        for name, value in fields.items():
            if value not in (None, "", {}, []):
                self._note(f"{path}.{name}", "has no counterpart and was left out")

    # -- identity --------------------------------------------------------------------------------------------

    def _metadata(self, given: JsonObject) -> tuple[JsonObject, str]:
        """Metadata as a person would write it, and the queue of Kueue that it names, if it does."""
        made: JsonObject = {k: value for k, value in given.items() if k not in (*_STORED, "generateName") and value}
        if not made.get("name"):
            made = {"name": text(given.get("generateName")).rstrip("-") or "job", **made}
            self._note("metadata.generateName", f"a job needs a fixed name: it is now {made['name']}")
        queue = ""
        for kind in ("labels", "annotations"):
            found = dict(mapping(made.pop(kind, {}), f"metadata.{kind}"))
            found.pop(_LAST_APPLIED, None)
            queue = text(found.pop(QUEUE, "")) or queue
            if found:
                made[kind] = found
        return made, queue

    # -- roles -----------------------------------------------------------------------------------------------

    def _roles(self, given: JsonObject, pods: Pods) -> dict[Role, JsonObject]:
        """The roles without their templates, which ``pods`` takes, in the order of TF_CONFIG."""
        made: dict[Role, JsonObject] = {}
        for key, value in given.items():
            path = f"spec.tfReplicaSpecs.{key}"
            role = ROLES.get(key.lower())
            if role is None:
                raise NotConvertible(f"{path}: not a role of a TFJob: use one of {', '.join(ROLES)}")
            if role in made:
                raise NotConvertible(f"{path}: there is a {role} already: a TFJob has a Chief or a Master")
            if key.lower() == MASTER:
                self._note(path, f"its task type in TF_CONFIG is {role} now, which a script may have to look for")
            made[role] = self._role(role, dict(mapping(value, path)), path, pods)
        if not made:
            raise NotConvertible("spec.tfReplicaSpecs has no role")
        return {role: made[role] for role in Role if role in made}

    def _role(self, role: Role, given: JsonObject, path: str, pods: Pods) -> JsonObject:
        pods.add(role, mapping(given.pop("template", None), f"{path}.template"), path)
        replicas, policy = given.pop("replicas", None), given.pop("restartPolicy", None)
        self._left_over(given, path)
        return {"replicas": 1 if replicas is None else replicas, **self._restarts(policy, path)}

    def _restarts(self, policy: JsonValue, path: str) -> JsonObject:
        if not policy:
            self._note(f"{path}.restartPolicy", "not set, which means Never in a TFJob, and was kept")
            policy = str(RestartPolicy.NEVER)
        elif policy == "Always":
            self._note(f"{path}.restartPolicy", "Always became OnFailure: a completed replica is not run again here")
            policy = str(RestartPolicy.ON_FAILURE)
        elif policy == RestartPolicy.EXIT_CODE:
            self._note(
                f"{path}.restartPolicy",
                "a TFJob retries exit codes from 128 on, here all but "
                f"{listed(map(str, sorted(EXIT_CODES_OF_ERRORS)))} are retried: "
                "runPolicy.exitCodes changes single ones",
            )
        return {} if policy == RestartPolicy.ON_FAILURE else {"restartPolicy": policy}

    # -- the strategy ----------------------------------------------------------------------------------------

    def _say_strategy(self, strategy: Strategy, wanted: Strategy | None, roles: dict[Role, JsonObject]) -> None:
        if wanted is None:
            who = listed(counted(_count(roles, role), role) for role in roles)
            self._note(
                _CHOICE,
                f"{strategy} was chosen for {who}: it must be what the script uses; choose another with --strategy",
            )
        if strategy is Strategy.PARAMETER_SERVER and not _count(roles, Role.CHIEF):
            self._note(
                "spec.replicaSpecs",
                "without a chief worker 0 decides, as in a TFJob; TensorFlow 2's ParameterServerStrategy needs one",
            )

    def _say_new_behaviour(self, roles: dict[Role, JsonObject], policy: JsonObject, pods: Pods) -> None:
        """What is another default here, or has another meaning, although the manifest looks the same."""
        kept = [str(role) for role in roles if roles[role].get("restartPolicy") == RestartPolicy.NEVER]
        if kept:
            self._note(
                f"spec.replicaSpecs.{kept[0]}.restartPolicy",
                "Never: a pod that is evicted or drained fails a TFJob, and is created again here, without limit: "
                "the script must save checkpoints, or set runPolicy.disruptionLimit: 0",
            )
        if not policy.get("cleanPodPolicy"):
            self._note(
                "spec.runPolicy.cleanPodPolicy",
                f"not set, which means None in a TFJob; here {RunPolicy().clean_pod_policy}: pods that still run at "
                "the end of the job are deleted",
            )
        if sum(_count(roles, role) for role in roles) == 1:
            self._note("spec.replicaSpecs", "TF_CONFIG is set for one replica too; a TFJob does not set it")
        if pods.gpus():
            self._note(
                "spec.template",
                "the limits for GPUs were kept; spec.accelerator would also set the node selector and tolerations",
            )

    def _elastic(self, strategy: Strategy, roles: dict[Role, JsonObject]) -> JsonObject:
        workers = _count(roles, Role.WORKER)
        if strategy not in ELASTIC or workers < 1:
            self._note("spec.enableDynamicWorker", f"{strategy} cannot change its number of workers: left out")
            return {}
        self._note(
            "spec.enableDynamicWorker",
            f"became elastic with 1 to {workers} workers: raise maxReplicas for more. A change of their number "
            "restarts all from the last checkpoint",
        )
        return {"elastic": {"minReplicas": 1, "maxReplicas": workers}}

    # -- how it runs and ends --------------------------------------------------------------------------------

    def _run_policy(
        self, given: JsonObject, roles: dict[Role, JsonObject], queue: str, success: JsonValue
    ) -> JsonObject:
        made: JsonObject = {name: given.pop(name) for name in SAME if given.get(name) is not None}
        if made.get("suspend") is False:
            del made["suspend"]
        if queue and made.pop("suspend", None):
            self._note("spec.runPolicy.suspend", "was set by Kueue and was left out: the queue holds the job")
        restarts = any(role.get("restartPolicy") != RestartPolicy.NEVER for role in roles.values())
        if restarts and "backoffLimit" not in made:
            self._note(
                "spec.runPolicy.backoffLimit",
                f"not set, which means no limit in a TFJob; here {_DEFAULT_BACKOFF} restarts after errors",
            )
        if success == SuccessPolicy.ALL_WORKERS and _count(roles, Role.CHIEF):
            self._note("spec.successPolicy", f"{success} has no effect in a TFJob with a chief: left out")
        elif success == SuccessPolicy.ALL_WORKERS:
            made["successPolicy"] = success
        elif success not in ("", None, "Default"):
            self._note("spec.successPolicy", f"there is no {success} here: left out")
        scheduling = self._scheduling(
            dict(mapping(given.pop("schedulingPolicy", None) or {}, "spec.runPolicy.schedulingPolicy")), roles, queue
        )
        if scheduling:
            made["scheduling"] = scheduling
        manager = self._manager(given.pop("managedBy", None))
        self._left_over(given, "spec.runPolicy")
        return {**({"runPolicy": made} if made else {}), **manager}

    def _manager(self, given: JsonValue) -> JsonObject:
        if not given or given == CONTROLLER:
            return {}
        self._note("spec.runPolicy.managedBy", f"became spec.managedBy: the operator leaves this job to {given}")
        return {"managedBy": given}

    def _scheduling(self, given: JsonObject, roles: dict[Role, JsonObject], kueue: str) -> JsonObject:
        path = "spec.runPolicy.schedulingPolicy"
        made: JsonObject = {}
        queue = given.pop("queue", None)
        if kueue:
            made |= {"gang": str(Gang.KUEUE), "queue": kueue}
        elif queue:
            made |= {"gang": str(Gang.VOLCANO), "queue": queue}
            self._note(f"{path}.queue", "taken for a queue of Volcano: set runPolicy.scheduling.gang if it is not")
        least, pods = given.pop("minAvailable", None), sum(_count(roles, role) for role in roles)
        least = 1 if least == 0 else least  # no pod waits for another
        if least and kueue:
            self._note(f"{path}.minAvailable", "left out: Kueue admits whole jobs only")
        elif isinstance(least, int) and least > pods:
            self._note(f"{path}.minAvailable", f"{least} is more than the job's {pods} pods: left out, so all of them")
        elif least:
            made["minAvailable"] = least
        priority = given.pop("priorityClass", None)
        if priority:
            made["priorityClassName"] = priority
        timeout = given.pop("scheduleTimeoutSeconds", None)
        if timeout:
            made["timeoutSeconds"] = timeout
        if given.pop("minResources", None):
            self._note(f"{path}.minResources", "left out: it is the sum of what minAvailable pods ask for")
        self._left_over(given, path)
        return made


def _suggested(roles: dict[Role, JsonObject], pods: Pods) -> Strategy:
    """The strategy that fits the roles: servers, several that train, or one with several GPUs."""
    if _count(roles, Role.PS):
        return Strategy.PARAMETER_SERVER
    if sum(_count(roles, role) for role in TRAINING_ROLES) > 1:
        return Strategy.MULTI_WORKER_MIRRORED
    return Strategy.MIRRORED if pods.gpus() > 1 else Strategy.ONE_DEVICE


def _count(roles: dict[Role, JsonObject], role: Role) -> int:
    replicas = dig(roles.get(role, {}), "replicas")
    return replicas if isinstance(replicas, int) else 0


_NOTHING_TO_CHECK: Final = "Nothing was left out."


def converted(files: tuple[str, ...], strategy: Strategy | None) -> list[str]:
    """The objects of these files as YAML. Raises UnreadableFile, NotConvertible."""
    found = [item for file in files for document in read(file) for item in document.items()]
    if not any(is_tfjob(document.body) for document in found):
        raise NotConvertible(_no_tfjob(files, found))
    return [_as_yaml(document, strategy) for document in found]


def _no_tfjob(files: tuple[str, ...], found: list[Document]) -> str:
    """What there is instead of a TFJob."""
    where = listed("standard input" if file == STDIN else file for file in files)
    kinds = dict.fromkeys((text(each.body.get("kind")), text(each.body.get("apiVersion"))) for each in found)
    there = [f"{kind or 'an object without a kind'} ({version or 'no apiVersion'})" for kind, version in kinds]
    ours = ", which needs no conversion" if [kind for kind, _ in kinds] == [names.KIND] else ""
    return f"{where}: there is no {KIND} ({GROUP}/…) here, but {listed(there or ['an empty list'])}{ours}"


def _as_yaml(document: Document, strategy: Strategy | None) -> str:
    """An object as YAML, a TFJob converted. What to check goes to standard error, too. Raises NotConvertible."""
    if not is_tfjob(document.body):
        say(f"{document.title}: {document.body.get('kind') or 'no kind'}: printed unchanged", err=True)
        return as_yaml([document.body])
    try:
        conversion = convert(document.body, strategy=strategy)
    except NotConvertible as error:
        raise NotConvertible(f"{document.title}: {error}") from error
    for note in conversion.notes:
        say(f"{document.title}: {note}", err=True)
    return _commented(document.body, conversion)


def _commented(tfjob: JsonObject, conversion: Conversion) -> str:
    """The job, with what to check above it."""
    # A note names fields of the TFJob: a line break in one would end the comment, and begin an object.
    notes = [f"# - {one_line(note)}" for note in conversion.notes] or [f"# {_NOTHING_TO_CHECK}"]
    version = one_line(str(tfjob["apiVersion"]))
    head = f"# From a {KIND} of {version}, by dtj convert." + (" To check:" if conversion.notes else "")
    return "\n".join([head, *notes, as_yaml([conversion.body])])
