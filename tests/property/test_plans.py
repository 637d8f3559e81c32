"""What holds for every job, whatever it is and whatever happens to its pods."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pydantic import JsonValue

from builders import NOW, ended, job, manifest, pod, seen, spec_of, stored
from dtj.api import names
from dtj.api.crd import job_schema
from dtj.api.goodput import TOLD, Goodput, Use
from dtj.api.job import Job, parse_time
from dtj.api.json import JsonObject, dig
from dtj.api.names import Condition, Env, Reason
from dtj.api.schema import check
from dtj.api.spec import CLUSTER_ROLES, Role, TensorBoard
from dtj.core import blockers
from dtj.core.actions import BestEffort, CreatePod, DeletePod, PatchStatus
from dtj.core.admission.scheduler_choice import APIS
from dtj.core.manifests.tf_config import Cluster
from dtj.core.observed import CreationRefusal, GangApi, Phase, TemplateVerdict
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.core.policies import goodput
from dtj.core.replicas import Replica, format_indexes, incarnation, parse_indexes, pod_name, replicas
from strategies import jobs, stored_objects
from support.pod_environment import environment_of
from world import World


def created_pods(job: Job) -> list[JsonObject]:
    observed = seen(job, verdict=TemplateVerdict(job.generation, NOW))
    return [action.render() for action in plan(observed, NOW) if isinstance(action, CreatePod)]


def environments(job: Job) -> list[dict[str, str]]:
    """The environment of each pod, as its kubelet makes it with the ConfigMap of the job."""
    cluster = Cluster(job, spec_of(job), Platform())
    config_maps = {cluster.config_map_name: cluster.config_map()} if cluster.config_map_name else {}
    return [environment_of(made, config_maps) for made in created_pods(job)]


@given(jobs())
def test_every_generated_name_is_a_dns_label_and_unique(job: Job) -> None:
    made = [str(dig(made, "metadata", "name")) for made in created_pods(job)]
    assert len(set(made)) == len(made) == len(replicas(spec_of(job)))
    assert all(len(name) + len("-r999") <= 63 for name in made)


@given(jobs())
def test_all_replicas_see_the_same_cluster_and_each_is_itself(job: Job) -> None:
    configs = [json.loads(environ[Env.TF_CONFIG]) for environ in environments(job)]
    assert all(config["cluster"] == configs[0]["cluster"] for config in configs)
    tasks = {(config["task"]["type"], config["task"]["index"]) for config in configs}
    assert tasks == {(str(replica.role), replica.index) for replica in replicas(spec_of(job))}


@given(jobs())
def test_the_cluster_lists_every_replica_that_takes_part_and_no_evaluator(job: Job) -> None:
    spec = spec_of(job)
    cluster = json.loads(environments(job)[0][Env.TF_CONFIG])["cluster"]
    assert cluster.keys() == {str(role) for role in CLUSTER_ROLES if spec.replicas(role)}
    addresses = [address for listed in cluster.values() for address in listed]
    assert len(set(addresses)) == len(addresses) == sum(spec.replicas(role) for role in CLUSTER_ROLES)


@given(jobs())
def test_the_length_of_tf_config_is_known_before_it_is_made(job: Job) -> None:
    longest = max(len(environ[Env.TF_CONFIG]) for environ in environments(job))
    assert Cluster(job, spec_of(job), Platform()).longest == longest


@given(jobs())
def test_a_host_name_in_tf_config_is_that_of_the_pod(job: Job) -> None:
    for made, environ in zip(created_pods(job), environments(job), strict=True):
        config = json.loads(environ[Env.TF_CONFIG])
        task = config["task"]
        if task["type"] in config["cluster"]:
            own = config["cluster"][task["type"]][task["index"]]
            assert own.startswith(f"{dig(made, 'spec', 'hostname')}.{dig(made, 'spec', 'subdomain')}.")


@given(stored_objects(), st.lists(st.sampled_from(list(Phase)), max_size=4))
@settings(max_examples=300)
def test_no_object_that_a_server_could_store_raises(body: JsonObject, phases: list[Phase]) -> None:
    job = Job.from_object(body)
    pods = tuple(pod(job, f"worker-{index}", phase=phase) for index, phase in enumerate(phases))
    for verdict in (None, TemplateVerdict(job.generation, NOW)):
        for action in plan(seen(job, pods=pods, verdict=verdict), NOW):
            if isinstance(action, CreatePod):
                action.render()


@given(
    words=st.builds(lambda text, times: text * times, st.text(max_size=40), st.sampled_from([1, 2000])),
    codes=st.lists(st.sampled_from([0, 1, 42, 75, 137, 143]), min_size=1, max_size=6),
)
def test_no_words_of_others_however_long_keep_a_job_from_being_planned(words: str, codes: list[int]) -> None:
    job = Job.from_object(stored(manifest(roles={"chief": 1, "worker": len(codes)}, runPolicy={"backoffLimit": 0})))
    end = {code: ended(code, reason=words[:100], message=words) for code in codes}
    pods = tuple(
        replace(pod(job, f"worker-{index}", phase=Phase.FAILED, termination=end[code]), message=words)
        for index, code in enumerate(codes)
    )
    accepted = TemplateVerdict(1, NOW)
    for observed in (
        seen(job, pods=pods, verdict=accepted),
        seen(job, verdict=TemplateVerdict(1, NOW, errors=(words,) * 3)),
        seen(job, obstacle=words),
        seen(job, verdict=accepted, refusal=CreationRefusal("a", "Forbidden", words, NOW)),
    ):
        for action in plan(observed, NOW):
            if isinstance(action, PatchStatus):
                schema = job_schema()
                assert not check(action.status.to_object(), schema["properties"]["status"], "status")  # type: ignore[index,call-overload,arg-type]


@given(st.sets(st.integers(0, 500)))
def test_indexes_survive_being_written_as_ranges(indexes: Iterable[int]) -> None:
    assert parse_indexes(format_indexes(indexes)) == frozenset(indexes)


@given(st.text(max_size=20))
def test_ranges_written_by_hand_never_raise(text: str) -> None:
    parse_indexes(text)


class Monkey(RuleBasedStateMachine):
    """A job lives while a monkey plays with its pods and restarts the operator; the invariants hold throughout.

    What the operator is shown is true here: tests/campaigns play stories in which it is late, or over.
    """

    @initialize(job=jobs(lively=True), installed=st.sampled_from([APIS, APIS[1:2], APIS[-1:]]))
    def create(self, job: Job, installed: tuple[GangApi, ...]) -> None:
        self.world = World(job, installed=installed)
        self.ended: set[Condition] = set()
        self.completed: dict[tuple[int, str], frozenset[int]] = {}
        self.attempt = self.restarts = 0
        self.steps: tuple[int, str] = (0, "")
        self.ledger = Goodput()

    def _pick(self, data: st.DataObject) -> str:
        name = data.draw(st.sampled_from(sorted(self.world.pods)))
        return name.removeprefix(f"{self.world.job.name}-")

    @rule()
    def the_operator_plans(self) -> None:
        known = {pod.uid: pod.owner_uid for pod in self.world.pods.values()}
        actions = self.world.step()
        if self.ended:
            assert not any(isinstance(action, CreatePod) for action in actions), "a pod was created after the end"
        done = [action.action if isinstance(action, BestEffort) else action for action in actions]
        deleted = [action.uid for action in done if isinstance(action, DeletePod)]
        assert all(known[uid] == self.world.job.uid for uid in deleted), "a pod of somebody else's was deleted"

    @precondition(lambda self: self.world.pods)
    @rule()
    def all_pods_are_ready(self) -> None:
        self.world.run_all()
        self.the_operator_plans()

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), code=st.sampled_from([None, 0, 1, 42, 75, 143]))
    def a_pod_changes(self, data: st.DataObject, code: int | None) -> None:
        replica = self._pick(data)
        phase = {None: Phase.RUNNING, 0: Phase.SUCCEEDED}.get(code, Phase.FAILED)
        self.world.schedule()
        pod_ = self.world.pods[f"{self.world.job.name}-{replica}"]
        if pod_.node and not pod_.main_container_ended:
            self.world.set_pod(replica, phase, exit_code=code)

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def a_node_is_drained(self, data: st.DataObject) -> None:
        self.world.take_away(self._pick(data))

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), reason=st.sampled_from(sorted(blockers.REASONS)))
    def a_pod_cannot_start(self, data: st.DataObject, reason: Reason) -> None:
        self.world.block(self._pick(data), reason, "no such thing")

    @rule(enforced=st.booleans())
    def the_namespace_is_labelled(self, enforced: bool) -> None:
        self.world.enforces_restricted = enforced

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def a_pod_vanishes(self, data: st.DataObject) -> None:
        self.world.remove(self._pick(data))

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def a_pod_fails_its_probes(self, data: st.DataObject) -> None:
        name = f"{self.world.job.name}-{self._pick(data)}"
        self.world.pods[name] = replace(self.world.pods[name], ready=False)

    @rule()
    def the_service_vanishes(self) -> None:
        self.world.service = None

    @rule(suspend=st.booleans())
    def its_owner_suspends_or_resumes_it(self, suspend: bool) -> None:
        self._suspend(suspend)

    def _suspend(self, suspend: bool) -> None:
        policy = spec_of(self.world.job).run_policy.model_copy(update={"suspend": suspend})
        self._change(run_policy=policy)

    def _change(self, **changes: object) -> None:
        job = self.world.job
        self.world.job = replace(job, spec=spec_of(job).model_copy(update=changes), generation=job.generation + 1)

    @precondition(lambda self: spec_of(self.world.job).elastic is not None)
    @rule(workers=st.integers(1, 12))
    def somebody_scales_it(self, workers: int) -> None:
        specs = spec_of(self.world.job).replica_specs
        worker = specs[Role.WORKER]
        assert worker is not None
        self._change(replica_specs={**specs, "worker": worker.model_copy(update={"replicas": workers})})

    @rule()
    def the_gangs_object_vanishes(self) -> None:
        self.world.gang = None

    @precondition(lambda self: self.world.gang is not None)
    @rule(workers=st.integers(1, 12))
    def kueue_admits(self, workers: int = 12) -> None:
        """An elastic job may get fewer workers than it asks for."""
        assignment: JsonObject = {"podSetAssignments": [{"name": "worker", "count": workers}]}
        self._kueue({"Admitted": "True", "QuotaReserved": "True"}, admission=assignment)

    @precondition(lambda self: self.world.gang is not None)
    @rule()
    def kueue_evicts(self) -> None:
        self._kueue({"Admitted": "True", "QuotaReserved": "True", "Evicted": "True"})

    def _kueue(self, conditions: dict[str, str], **more: JsonValue) -> None:
        states: list[JsonValue] = [{"type": kind, "status": status} for kind, status in conditions.items()]
        self.world.kueue_says({"conditions": states, **more})

    @rule(quota=st.booleans())
    def a_quota_refuses_pods_or_does_not(self, quota: bool) -> None:
        name = f"{self.world.job.name}-worker-0"
        self.world.refusal = CreationRefusal(name, "Forbidden", "exceeded quota", NOW) if quota else None

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), step=st.integers(0, 5))
    def the_training_advances(self, data: st.DataObject, step: int) -> None:
        self.world.report(self._pick(data), step=step)

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), step=st.integers(0, 50))
    def the_training_says_what_its_time_went_to(self, data: st.DataObject, step: int) -> None:
        self.all_pods_are_ready()
        self.world.advance(10)
        sums = data.draw(st.dictionaries(st.sampled_from(sorted(TOLD)), st.floats(0, 40)))
        steps = {name: data.draw(st.integers(0, step)) for name in ("firstStep", "repeatedSteps", "lastCheckpointStep")}
        self.world.report(self._pick(data), step=step, seconds=sums, **steps)
        self.the_operator_plans()

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), seconds=st.integers(0, 80))
    def a_pod_does_not_answer(self, data: st.DataObject, seconds: int) -> None:
        self.world.is_silent(self._pick(data), seconds=seconds)

    @rule()
    def the_operator_restarts(self) -> None:
        self.world.operator_restarts()

    @rule(seconds=st.integers(0, 30))
    def time_passes(self, seconds: int) -> None:
        self.world.advance(seconds)
        self.world.finish_deletions()

    @rule(wanted=st.booleans())
    def somebody_turns_tensorboard_on_or_off(self, wanted: bool) -> None:
        self._change(tensor_board=TensorBoard(ttl_seconds=100) if wanted else None)

    @invariant()
    def tensorboard_is_counted_nowhere(self) -> None:
        status = self.world.job.status
        assert names.TENSORBOARD not in status.replica_statuses
        assert status.root_cause is None or status.root_cause.role != names.TENSORBOARD

    @invariant()
    def the_end_is_one_and_final(self) -> None:
        now = {end for end in (Condition.COMPLETE, Condition.FAILED) if self.world.is_true(end)}
        assert len(now) <= 1
        assert self.ended <= now
        self.ended = now

    @invariant()
    def the_state_of_an_attempt_never_goes_back(self) -> None:
        """Restarting and Suspended are steps of their own: what follows them begins again."""
        order = ["Pending", "Starting", "Running", "Succeeded", "Failed"]
        status = self.world.job.status
        attempt, before = self.steps
        if status.attempt == attempt and before in order and status.state in order:
            assert order.index(status.state) >= order.index(before), f"{status.state} after {before}"
        self.steps = (status.attempt, status.state)

    @invariant()
    def budgets_are_never_overdrawn_and_counters_never_fall(self) -> None:
        policy, counts = spec_of(self.world.job).run_policy, self.world.job.status.restarts
        assert counts.user + counts.out_of_memory <= policy.backoff_limit
        assert policy.disruption_limit is None or counts.disruption <= policy.disruption_limit
        assert counts.total == counts.user + counts.out_of_memory + counts.preemption + counts.disruption
        assert counts.total >= self.restarts
        self.restarts = counts.total

    @invariant()
    def each_second_of_its_life_went_to_one_thing_and_stays_there_unless_its_steps_are_repeated(self) -> None:
        status, before = self.world.job.status, self.ledger
        now = status.goodput or Goodput()
        if now == before:
            return
        self.ledger, spent, earlier = now, now.seconds.by_use(), before.seconds.by_use()
        written, created = self.world.status_written_at, self.world.job.created_at
        assert written is not None
        assert created is not None
        until = parse_time(status.completion_time if status.terminal else now.updated_at)
        assert until is not None
        assert now.seconds.total == (until - created).total_seconds()
        assert written - until < timedelta(seconds=61)
        again = spent[Use.REPEATED] - earlier[Use.REPEATED]
        assert all(spent[use] >= earlier[use] for use in Use if use is not Use.TRAINING)
        assert spent[Use.TRAINING] + again >= earlier[Use.TRAINING]
        counted = goodput.spent(now)
        assert all(counted[use] >= number for use, number in goodput.spent(before).items())
        assert not status.terminal or counted[Use.TRAINING] >= spent[Use.TRAINING]
        assert now.repeated_steps >= before.repeated_steps

    @invariant()
    def completed_replicas_stay_completed_and_are_never_run_again_in_their_attempt(self) -> None:
        attempt = self.world.job.status.attempt
        assert attempt >= self.attempt
        self.attempt = attempt
        for role, counts in self.world.job.status.replica_statuses.items():
            done = parse_indexes(counts.completed_indexes)
            assert self.completed.get((attempt, role), frozenset()) <= done
            self.completed[attempt, role] = done
            for index in done:
                replica = Replica(Role(role), index)
                name = pod_name(self.world.job, replica, incarnation(self.world.job.status, replica))
                running = self.world.pods.get(name)
                assert running is None or running.main_container_ended

    def teardown(self) -> None:
        """When the monkey stops and all pods do their work, the job ends in a bounded number of passes."""
        if not hasattr(self, "world"):
            return
        self._suspend(False)
        self.world.installed = APIS
        self.world.refusal = None
        for _ in range(12):
            self.world.advance(60)
            if self.world.gang is not None:
                self.kueue_admits()
            self.world.settle()
            self.world.finish_deletions()
            self.world.schedule()
            for name, pod_ in list(self.world.pods.items()):
                if pod_.node and not pod_.main_container_ended:
                    self.world.set_pod(name.removeprefix(f"{self.world.job.name}-"), Phase.SUCCEEDED)
        assert self.world.job.status.terminal
        self._outlive_tensorboard()

    def _outlive_tensorboard(self) -> None:
        for _ in range(3):
            self.world.advance(200)
            self.world.settle()
            self.world.finish_deletions()
        assert self.world.tensorboard is None
        assert f"{self.world.job.name}-{names.TENSORBOARD}" not in self.world.pods


TestMonkey = Monkey.TestCase
TestMonkey.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def test_a_pods_name_depends_on_job_and_replica_alone() -> None:
    spec = spec_of(Job.from_object({"spec": {"strategy": "OneDevice", "replicaSpecs": {"worker": {}}}}))
    assert [pod_name(job("a"), replica) for replica in replicas(spec)] == ["a-worker-0"]
