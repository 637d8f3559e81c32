"""Whatever the order in which news of jobs comes, the store ends with what the API server has."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import record_of
from dtj.api.json import JsonObject
from dtj.engine.job_store import JobRecord, JobStore

NAMES = ("a", "b")
STEPS = ("create", "change", "delete", "event", "write", "answer", "begin list", "take list", "end list")


@dataclass
class _List:
    listed_at: int
    shows: dict[str, JobRecord] | None = None


@dataclass
class Newsroom:
    """An API server with two names, and all that is on its way from it to the store.

    Events of one UID keep their order, those of two UIDs do not: so kopf delivers them. Answers and lists come whenever
    they like, but a list shows a moment between its beginning and its end.
    """

    store: JobStore = field(default_factory=JobStore)
    server: dict[str, JobRecord] = field(default_factory=dict)
    version: int = 0
    events: defaultdict[str, deque[tuple[str, JobRecord]]] = field(default_factory=lambda: defaultdict(deque))
    answers: list[JobRecord] = field(default_factory=list)
    lists: list[_List] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)

    def step(self, kind: str, pick: int) -> None:
        name = NAMES[pick % len(NAMES)]
        current = self.server.get(name)
        match kind:
            case "create" if current is None:
                self._write(name, uid=f"uid-{self.version}")
            case "change" | "write" if current is not None:
                record = self._write(name, uid=current.uid)
                if kind == "write":
                    self.answers.append(record)
            case "delete" if current is not None:
                self.version += 1
                del self.server[name]
                self.events[current.uid].append(("DELETED", current))
            case "event" if waiting := sorted(uid for uid, events in self.events.items() if events):
                self._deliver(waiting[pick % len(waiting)])
            case "answer" if self.answers:
                self.store.answer(self.answers.pop(pick % len(self.answers)))
            case "begin list":
                self.lists.append(_List(self.store.moment))
            case "take list" if asked := [each for each in self.lists if each.shows is None]:
                asked[pick % len(asked)].shows = dict(self.server)
            case "end list" if taken := [each for each in self.lists if each.shows is not None]:
                self._end(taken[pick % len(taken)])

    def _write(self, name: str, *, uid: str) -> JobRecord:
        self.version += 1
        metadata: JsonObject = {"name": name, "uid": uid, "resourceVersion": str(self.version)}
        record = record_of({"metadata": metadata})
        self.server[name] = record
        self.events[uid].append(("MODIFIED", record))
        return record

    def _deliver(self, uid: str) -> None:
        kind, record = self.events[uid].popleft()
        if kind == "DELETED":
            self.store.remove(record.key, uid=uid)
            self.ended.add(uid)
        else:
            self.store.put(record)

    def _end(self, listed: _List) -> None:
        self.lists.remove(listed)
        assert listed.shows is not None
        for record in listed.shows.values():
            self.store.merge(record, listed_at=listed.listed_at)
        present = {record.uid for record in listed.shows.values()}
        for record in self.store.missing(None, present, listed_at=listed.listed_at):
            self.store.remove(record.key, uid=record.uid)

    def settle(self, order: st.DataObject) -> None:
        """All that is on its way arrives."""
        while any(self.events.values()) or self.answers or self.lists:
            self.step("take list", 0)
            kind = order.draw(st.sampled_from(["event", "answer", "end list"]))
            self.step(kind, order.draw(st.integers(0, 7)))


@settings(max_examples=400)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7)), max_size=40), st.data())
def test_in_the_end_the_store_has_what_the_api_server_has(steps: list[tuple[str, int]], data: st.DataObject) -> None:
    room = Newsroom()
    for kind, pick in steps:
        room.step(kind, pick)
        assert not room.ended & {record.uid for record in room.store}, "a job whose end was told is there again"
    room.settle(data)
    assert {record.name: record for record in room.store} == room.server
