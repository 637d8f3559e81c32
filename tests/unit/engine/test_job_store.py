"""The store of jobs: which of two pieces of news is believed."""

from __future__ import annotations

import pytest

from builders import manifest, record_of
from dtj.engine import job_store
from dtj.engine.job_store import JobRecord, JobStore

KEY = ("default", "digits")


def version(uid: str, number: int | str, *, name: str = "digits", namespace: str = "default") -> JobRecord:
    metadata = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(number), "generation": 1}
    return record_of({**manifest(name), "metadata": metadata})  # type: ignore[dict-item]


def held(store: JobStore) -> str:
    record = store.get(KEY)
    return f"{record.uid} {record.resource_version}" if record is not None else ""


def test_late_news_of_a_deleted_job_displaces_no_successor_and_does_not_come_back_after_it() -> None:
    store = JobStore()
    store.put(version("new", 60))
    assert store.put(version("old", 11)).over is None
    assert store.remove(KEY, uid="old") is None
    assert held(store) == "new 60"
    listed_at = store.moment
    store.remove(KEY, uid="new")
    assert not store.put(version("old", 12)).changed
    assert not store.put(version("new", 61)).changed
    assert not store.merge(version("new", 61), listed_at=listed_at).changed, "it ended while the list was on its way"
    assert held(store) == ""


def test_an_older_job_of_that_name_is_over_also_if_its_deletion_is_never_reported() -> None:
    store = JobStore()
    store.put(version("new", 60))
    store.put(version("old", 11))
    store.remove(KEY, uid="new")
    assert not store.put(version("old", 12)).changed


def test_what_a_list_lacks_is_over_unless_it_came_while_the_list_was_on_its_way() -> None:
    store = JobStore()
    store.put(version("gone", 5, name="gone"))
    store.put(version("changed", 5, name="changed"))
    store.put(version("elsewhere", 5, namespace="elsewhere"))
    listed_at = store.moment
    store.put(version("new", 7, name="new"))
    store.put(version("changed", 8, name="changed"))

    def missing(namespace: str | None) -> set[str]:
        return {record.uid for record in store.missing(namespace, set(), listed_at=listed_at)}

    assert missing(None) == {"gone", "changed", "elsewhere"}, "a change that is late is no new job"
    assert missing("default") == {"gone", "changed"}


def test_a_list_that_began_later_is_believed_also_where_its_versions_are_lower() -> None:
    """An etcd that was restored from a backup."""
    store = JobStore()
    store.put(version("a", 900))
    store.put(version("deleted", 950, name="deleted"))
    store.remove(("default", "deleted"), uid="deleted")
    listed_at = store.moment
    assert store.merge(version("a", 60), listed_at=listed_at).changed
    assert held(store) == "a 60"
    assert store.merge(version("deleted", 50, name="deleted"), listed_at=listed_at).changed
    assert store.put(version("deleted", 61, name="deleted")).changed, "it lives again"


def test_a_list_that_began_later_ends_a_job_that_has_a_higher_version_than_its_successor() -> None:
    store = JobStore()
    store.put(version("a", 900))
    news = store.merge(version("b", 60), listed_at=store.moment)
    assert news.over is not None
    assert news.over.uid == "a"
    assert held(store) == "b 60"


def test_versions_that_are_no_numbers_are_taken_as_they_come() -> None:
    store = JobStore()
    store.put(version("a", "x"))
    assert store.put(version("a", "b")).changed
    assert store.put(version("b", "a")).over is not None
    assert store.newest == 0


def test_tombstones_are_bounded_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_store, "MAX_TOMBSTONES", 2)
    store = JobStore()
    for uid in ("a", "b", "c"):
        store.remove(KEY, uid=uid)
    assert not store.put(version("c", 1)).changed
    assert not store.put(version("b", 1)).changed
    assert store.put(version("a", 1)).changed
