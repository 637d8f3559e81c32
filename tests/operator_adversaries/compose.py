"""Composes samples at random: one seed, one sample.

What objects hold follows from what reads them: the fields of the operator's own records, and the schemas of the jobs.
A field that is added there is written here from then on.

Not composed yet: several namespaces that are served alone, and what a real API server does by itself (defaults,
webhooks, the garbage collector). What is written into leases is in :mod:`operator_adversaries.leases`, and what becomes
of the job itself in :mod:`operator_adversaries.lives`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from dtj.api import names
from dtj.api.json import JsonObject
from operator_adversaries import extremes, gangs, troubles
from operator_adversaries.extremes import Deep, Many, Number, Row, Taken, Told
from operator_adversaries.places import FUNCTIONS
from operator_adversaries.sample import ALL, Act, Delete, Edit, Ends, Make, Path, Sample, Submit
from operator_adversaries.schemas import ANNOTATIONS, EVENT, LABELS, READ, RECORDS, free_places, resolved, schema_of
from operator_adversaries.storable import completed, stored
from operator_adversaries.wire import Load

FORMS: Final = ("DistributedTrainingJob",) * 3 + ("TFJob",)
SHAPES: Final = {
    "DistributedTrainingJob": (
        "fixed",
        "elastic",
        "elastic",
        "servers",
        "queued",
        "gang",
        "many",
        "waits",
        "default queue",
    ),
    "TFJob": ("fixed", "servers", "dynamic", "queued", "waits"),
}
_LARGE: Final = {
    "DistributedTrainingJob": ("fixed", "alone", "servers", "elastic", "queued"),
    "TFJob": ("fixed", "servers", "dynamic"),
}
"""Shapes of jobs with a load."""

_SMALL: Final = frozenset({"exitCode", "restartCount", "signal", "count"})
"""Fields of 32 bits."""

_TAKEN: Final[dict[str, tuple[str, ...]]] = {
    "podIP": ("10.9.8.7", "2001:db8::ffff", "::1", "127.0.0.1"),
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "nodeName": ("n1", "0", "a" * 253, "a.b-c"),
    "conditionType": ("Ready", "x", "example.com/x", "a" * 63),
}
"""All that a real API server takes of a pod in fields that look as if they took any text."""

_OF_SERVER: Final = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    }
)
"""Metadata that nobody else can write."""


class Composer:
    """Draws one sample; a ``large`` one may have thousands of pods."""

    def __init__(self, rng: random.Random, *, large: bool) -> None:
        self.rng = rng
        self.large = large
        self.form = rng.choice(FORMS)
        self.shape = rng.choice(SHAPES[self.form])

    def sample(self) -> Sample:
        rng = self.rng
        kind = rng.choices(("objects", "answers", "faults", "raises", "loads"), (10, 3, 4, 3, 2))[0]
        if kind == "loads":
            return self._load()
        more: dict[str, Any] = {"acts": self._acts(rng.choice((1, 2, 4, 8)))} if kind == "objects" else {}
        if kind == "answers":
            more = {
                "answers": tuple(troubles.answer(rng) for _ in range(rng.choice((1, 2)))),
                "acts": tuple(self._ends(rng.uniform(0, 60)) for _ in range(rng.choice((0, 1)))),
            }
        if kind == "faults":
            more = {"faults": tuple(troubles.fault(rng) for _ in range(rng.choice((1, 1, 2))))}
            more["acts"] = (
                Submit(5.0, "late", ()),
                *((Delete(10.0, "pods", rng.randrange(3), 30, 0.0),) * rng.randrange(2)),
            )
        if kind == "raises":
            more = {"raises": tuple(troubles.raises(rng, where) for where in rng.sample(FUNCTIONS, rng.choice((2, 4))))}
            more["acts"] = (
                Submit(5.0, "late", ()),
                *((Delete(10.0, "pods", rng.randrange(3), 30, 0.0),) * rng.randrange(2)),
            )
        return Sample(form=self.form, shape=self.shape, policies=rng.random() < 0.3, **more)

    def _load(self) -> Sample:
        """Much happens at once, and again before it is over."""
        rng = self.rng
        shape = rng.choice(_LARGE[self.form])
        # More than 3,000 would not find place in a TF_CONFIG, and such a spec is refused.
        pods = rng.choice((32, 96, 240) if not self.large or rng.random() < 0.95 else (1000, 1000, 3000))
        pace = rng.choice((12.0, 12.0, 50.0))
        length = 3 * pods / pace
        acts: list[Act] = [Submit(5.0, "late", ())]
        for _ in range(rng.choice((1, 2, 3))):
            at = round(rng.uniform(0, 2 * length), 1)
            pick = rng.choice((ALL, ALL, ALL, rng.randrange(pods)))
            if rng.random() < 0.4:
                acts.append(Delete(at, "pods", pick, rng.choice((0, 30)), rng.choice((0.0, 20.0))))
            else:
                acts.append(
                    Ends(at, pick, rng.choice((1, 75, 75, 137, 137, 143)), rng.choice((None, troubles.words(rng))))
                )
        acts.sort(key=lambda act: act.at)
        load = Load(pods, pace, refuses=rng.random() < 0.5)
        return Sample(form=self.form, shape=shape, policies=rng.random() < 0.3, acts=tuple(acts), load=load)

    # -- objects -----------------------------------------------------------------------------------------------------

    def _acts(self, number: int) -> tuple[Act, ...]:
        acts = [self._act() for _ in range(number)]
        return tuple(sorted(acts, key=lambda act: act.at))

    def _act(self) -> Act:
        rng = self.rng
        at = round(rng.uniform(0, 60), 1)
        plural, pick = rng.choice((*RECORDS, "pods", "pods", "pods", "services")), rng.randrange(8)
        kinds = {
            "edit": 6,
            "make": 5,
            "delete": 2,
            "submit": 4,
            "change": 3,
            "ends": 1,
            "event": 4 if self.shape == "waits" else 0,
            "world": 5 if self.shape == "elastic" else 0,
            "scale": 2 if self.shape == "elastic" else 0,
        }
        match rng.choices(list(kinds), list(kinds.values()))[0]:
            case "edit":
                return Edit(at, plural, pick, self._edits(plural), rng.choice((1, 1, 3)))
            case "make":
                made = self._edits(plural) if rng.random() < 0.9 else ()
                if rng.random() < 0.2:
                    made = (*made, (("metadata", "labels"), None))
                return Make(at, plural, pick, rng.choice(_NAMES), made, rng.random() < 0.5)
            case "delete":
                grace = rng.choice((0, 1, 30, 2**31, 10**10, 2**62, 2**63 - 1))
                return Delete(at, rng.choice((plural, "pods")), pick, grace, rng.choice((0.0, 20.0, 10.0**6)))
            case "submit":
                name = rng.choice(("hostile", "hostile", "x", "a" * 63, "late"))
                return Submit(at, name, self._job_edits(rng.choice((("spec", "metadata"), ("status", "spec")))))
            case "change":
                return Edit(at, "jobs", pick, self._job_edits(rng.choice((("spec", "metadata"), ("status",)))))
            case "world":
                return Edit(at, "pods", pick, ((("metadata", "annotations", names.Annotation.WORLD), self._world()),))
            case "scale":
                replicas = ("spec", "replicaSpecs", "worker", "replicas")
                return Edit(at, "jobs", pick, ((replicas, rng.choice((1, 3, 4))),))
            case "event":
                reason = (("reason",), rng.choice(("FailedMount", "FailedAttachVolume", "NetworkNotReady")))
                return Make(
                    at,
                    "events",
                    0,
                    f"event-{rng.randrange(5)}",
                    (reason, *(self._walk(EVENT, ()) for _ in range(2))),
                    False,
                )
        return self._ends(at)

    def _ends(self, at: float) -> Ends:
        code = self.rng.choice((0, 1, 75, 137, 143, -1, 2**31 - 1))
        pick = ALL if self.rng.random() < 0.2 else self.rng.randrange(8)
        return Ends(round(at, 1), pick, code, troubles.words(self.rng))

    def _edits(self, plural: str) -> tuple[tuple[Path, Any], ...]:
        schema: Any = schema_of(plural)
        found: list[tuple[Path, Any]] = []
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            part = self.rng.choice(("metadata", "metadata", "spec", "status"))
            if part == "metadata":
                found.append(self._metadata(plural))
            elif part == "status" and plural in ("workloads", "podgroups"):
                found.append(gangs.status_of(self.rng, plural))
            elif part not in resolved(schema, schema)["properties"]:
                found.append(self._metadata(plural))
            else:
                found.append(self._walk(schema, (part,)))
        return tuple(found)

    def _job_edits(self, parts: tuple[str, ...]) -> tuple[tuple[Path, Any], ...]:
        """What an API server stores of what is drawn."""
        found: tuple[tuple[Path, Any], ...] = ()
        number = self.rng.choice((1, 1, 2, 3))
        for _ in range(30):
            more = (*found, *self._job_edit(self.rng.choice(parts)))
            if stored(self.form, self.shape, more):
                found, number = more, number - 1
            if number == 0:
                break
        return found or (self._metadata(),)

    def _job_edit(self, part: str) -> Iterator[tuple[Path, Any]]:
        """A value at a place, and what must stand beside it."""
        if part == "metadata":
            yield self._metadata()
            return
        path, value = self._walk(schema_of(self.form), (part,))
        if part == "spec" and free_places(self.form) and self.rng.random() < 0.2:
            path, value = self.rng.choice(free_places(self.form)), extremes.anything(self.rng)
        yield from completed(self.form, self.shape, path)
        yield path, value

    def _metadata(self, plural: str = "") -> tuple[Path, Any]:
        """``plural`` is empty for a job."""
        rng = self.rng
        match rng.choice(("label", "annotation", "annotation", "owners", "whole")):
            case "label":
                return ("metadata", "labels", rng.choice(LABELS)), rng.choice((*extremes.LABELS, *_ROLES))
            case "annotation":
                read = READ.get(plural, ()) if rng.random() < 0.6 else ()
                return ("metadata", "annotations", rng.choice(read or ANNOTATIONS)), self._annotation()
            case "owners" if plural:
                return ("metadata", "ownerReferences"), self._owners()
        many = {f"example.com/{index}": "x" for index in range(rng.choice((0, 3, 2_000)))}
        places: dict[str, Any] = {
            "labels": many,
            "annotations": many,
            "finalizers": Row("example.com/x", 1000),
            "managedFields": Row({"manager": "x"}, 1000),
        }
        field = rng.choice(sorted(places))
        return ("metadata", field), rng.choice((None, places[field]))

    def _annotation(self) -> Any:
        rng = self.rng
        if rng.random() < 0.3:
            return Taken(rng.choice((*RECORDS, "configmaps")), rng.randrange(8), ("metadata", "name"))
        if rng.random() < 0.5:
            return self._world()
        return extremes.text(rng, most=250_000)

    def _world(self) -> Any:
        """The world of an elastic job, as its pods have it, with one thing in it that none has."""
        rng = self.rng
        fields: dict[str, Any] = {
            "generation": rng.choice((0, 1, 2, 3)),
            "members": {"worker": rng.choice(("0", "0-1", "0-2", "1"))},
            "address": "{role}-{index}:1",
        }
        numbers = (
            2**31,
            2**51,
            2**52,
            2**53,
            2**62,
            2**63,
            -1,
            1.5,
            "1",
            True,
            None,
            Number("9" * 5000),
            Deep(900, "["),
        )
        ranges = (
            "0-9999", "5-1", "-", "-1", "", "\u0663", "1e3", Many("9", 5_000), Many("0,", 100_000),
            Many("0-99999,", 28_000), "0-" + "9" * 5_000, ",".join(map(str, range(0, 9_000, 2))), Deep(900), 3, None,
        )  # fmt: skip
        match rng.choice(("generation", "ranges", "ranges", "role", "field")):
            case "generation":
                fields["generation"] = rng.choice(numbers)
            case "ranges":
                fields["members"] = {"worker": rng.choice(ranges)}
            case "role":
                fields["members"] |= {rng.choice(("chief", "ps", "evaluator", "x", "")): rng.choice(("0", *ranges))}
            case "field":
                fields[rng.choice(sorted(fields))] = rng.choice((None, [], {}, Deep(900), Many("x", 100_000)))
        return Told(tuple(fields.items()))

    def _owners(self) -> Any:
        rng = self.rng

        def owner() -> Any:
            uid = rng.choice(
                (Taken("jobs", rng.randrange(3), ("metadata", "uid")), "x", Many("u", 1_000_000), extremes.text(rng))
            )
            found = {"apiVersion": "a.dev/v1", "kind": rng.choice(("Pod", names.KIND, "x")), "name": "x", "uid": uid}
            return found if rng.random() < 0.3 else {**found, "controller": rng.choice((True, True, False, None))}

        return rng.choice(
            ([owner()], [owner(), owner()], [], Row({"uid": "x", "name": "x", "kind": "x", "apiVersion": "v1"}, 3_000))
        )

    def _walk(self, schema: JsonObject, path: Path) -> tuple[Path, Any]:
        """Go down to some place, and put a value there."""
        at: Any = schema
        for part in path:
            at = resolved(at, schema)["properties"][part]
        while True:
            at = resolved(at, schema)
            if self.rng.random() < 0.05 and len(path) > 1:
                return path, self._value(at, schema, path, levels=3)
            if at.get("properties"):
                allowed = sorted(key for key in at["properties"] if path[-1:] != ("metadata",) or key not in _OF_SERVER)
                if (
                    "template" in allowed and self.rng.random() < 0.8
                ):  # it has a hundred times as many fields as the rest
                    allowed.remove("template")
                key: str | int = self.rng.choice(allowed)
                at = at["properties"][key]
            elif isinstance(at.get("additionalProperties"), dict) and at["additionalProperties"]:
                key, at = self._key(path), at["additionalProperties"]
            elif at.get("items"):
                key, at = 0, at["items"]
            else:
                return path, self._value(at, schema, path, levels=3)
            path = (*path, key)

    def _key(self, path: Path) -> str:
        if path[-1] == "labels":
            return self.rng.choice(LABELS)
        if path[-1] == "annotations":
            return self.rng.choice(ANNOTATIONS)
        pool = (
            "worker",
            "Worker",
            "chief",
            "ps",
            "PS",
            "Chief",
            "Master",
            "evaluator",
            "x",
            "cpu",
            "memory",
            "nvidia.com/gpu",
            "a" * 300,
            "",
        )
        return self.rng.choice(pool)

    def _value(self, at: Any, schema: JsonObject, path: Path, *, levels: int) -> Any:
        """What such a field can hold: at the edge of it."""
        rng, at = self.rng, resolved(at, schema)
        if "enum" in at:
            return rng.choice(at["enum"])
        if at.get("x-kubernetes-preserve-unknown-fields") and "x-kubernetes-int-or-string" not in at:
            return extremes.anything(rng)
        if at.get("x-kubernetes-int-or-string"):
            return rng.choice((extremes.number(rng), extremes.text(rng, pattern=at.get("pattern", ""))))
        match at.get("type"):
            case "string":
                return self._text(at, path)
            case "integer":
                bits = 32 if path[-1] in _SMALL or at.get("format") == "int32" else 64
                return extremes.number(rng, bits=bits, least=at.get("minimum"), most=at.get("maximum"))
            case "number":
                return rng.choice((0, -1, 1e308, 5e-324, 2**63))
            case "boolean":
                return rng.random() < 0.5
            case "array":
                if levels == 0:
                    return []
                item = self._value(at.get("items", {}), schema, (*path, 0), levels=levels - 1)
                many = [item] if _is_long(item) else Row(item, min(at.get("maxItems", 3_000), 3_000))
                return rng.choice(([], [item], [item, item], many))
            case "object":
                if levels == 0:
                    return {}
                if isinstance(at.get("additionalProperties"), dict) and at["additionalProperties"]:
                    value = self._value(at["additionalProperties"], schema, (*path, "x"), levels=levels - 1)
                    return rng.choice(({}, {self._key(path): value}))
                properties, required = at.get("properties", {}), at.get("required", ())
                keys = [key for key in sorted(properties) if key in required or rng.random() < 0.3]
                return {key: self._value(properties[key], schema, (*path, key), levels=levels - 1) for key in keys}
        return extremes.anything(rng)

    def _text(self, at: Any, path: Path) -> Any:
        rng, last = self.rng, str(path[-1])
        if "labels" in path:
            return rng.choice((*extremes.LABELS, *_ROLES))
        if "annotations" in path:
            return self._annotation()
        if last in _TAKEN:
            return rng.choice(_TAKEN[last])
        if path[:2] == ("spec", "selector"):
            return rng.choice(extremes.LABELS)
        if last.endswith(("Timestamp", "Time", "At")):
            return rng.choice(extremes.TIMES)
        if rng.random() < 0.1:
            return Taken(rng.choice(("pods", "services", "jobs")), rng.randrange(4), ("metadata", "name"))
        return extremes.text(rng, most=at.get("maxLength") or 1_500_000, pattern=at.get("pattern", ""))


_NAMES: Final = (
    "bomb",
    "digits-worker-7",
    "digits-worker-0-r1",
    "digits-tensorboard",
    "digits-checkpoint",
    "late",
    "late-worker-0",
    "a" * 253,
    "0",
)
_ROLES: Final = ("worker", "chief", "ps", "evaluator", "tensorboard", "digits", "late", "other", "peer")


def _is_long(value: Any) -> bool:
    return isinstance(value, Many | Deep | Row)


def compose(seed: int, *, large: bool = False) -> Sample:
    """The sample of a seed; a ``large`` one may have thousands of pods."""
    return Composer(random.Random(seed), large=large).sample()
