"""What pods answer, what the API server does, and where something goes wrong within: each composed at random."""

from __future__ import annotations

import random
from typing import Any

from operator_adversaries import extremes
from operator_adversaries.extremes import Deep, Many, Number, Row
from operator_adversaries.sample import Answer, Raises
from operator_adversaries.schemas import WORDS
from operator_adversaries.wire import Fault


def answer(rng: random.Random) -> Answer:
    if rng.random() < 0.3:  # slow, endless, or no answer
        return Answer(
            rng.choice(("{}", '{"step":1}', Many("x", 60_000), Many("x", 70_000), Many("[", 65_000), "")),
            head=rng.choice(
                (
                    "HTTP/1.0 200 OK",
                    "HTTP/1.0 500 x",
                    "",
                    "HTTP/1.0 200 OK\r\nContent-Length: 99999999999999999999",
                    "x" * 70_000,
                )
            ),
            pieces=rng.choice((1, 2, 50)),
            pause=rng.choice((0.0, 0.1, 2.9, 100.0)),
            endless=rng.random() < 0.5,
        )
    return Answer(words(rng), pieces=rng.choice((1, 1, 3)))


def words(rng: random.Random) -> Any:
    """JSON as a trainer reports it, with a value in it that none would."""
    usual: dict[str, Any] = {
        "phase": "Training",
        "step": 7,
        "totalSteps": 100,
        "epoch": 1,
        "world": 0,
        "metrics": {"loss": 0.1},
        "seconds": {"starting": 2.5, "training": 3.5},
        "firstStep": 0,
    }
    if rng.random() < 0.1:
        usual["corrupt"] = {"workers": rng.choice((["worker-0"], ["worker-1"], ["worker-0", "worker-1"])), "step": 7}
    for _ in range(rng.choice((0, 1, 1, 2))):
        field = rng.choice(WORDS)
        value: Any = rng.choice(
            (
                Deep(900, "["),
                Deep(900),
                Deep(990, "["),
                Deep(40),
                Deep(130, "["),
                Deep(9_000),
                Deep(30_000, "["),
                Number("9" * 5000),
                Number("1e999"),
                Number("-0"),
                Number("NaN"),
                Number("Infinity"),
                Number('"\\ud800"'),
                Number("1" * 400 + ".5"),
                Number('"\\u0000"'),
                Row({}, 20_000),
                Row("x", 100),
                Row(Number("1"), 30_000),
                2**63,
                2**64,
                1e308,
                -1,
                None,
                True,
                {},
                [],
                "",
                "x",
                {"loss": Deep(900, "[")},
                {"a": Number("NaN")},
                {"loss": Number("9" * 5000)},
                {Many("k", 1).text: 1},
                Many("\x1b[2J", 500),
                extremes.text(rng, most=60_000),
            )
        )
        if rng.random() < 0.3:
            value = {rng.choice(WORDS): value}
        usual[field] = value
    if rng.random() < 0.1:
        return rng.choice(
            (
                Deep(900, "["),
                Number("9" * 5000),
                "",
                "null",
                Many("x", 60_000),
                Number(""),
                Number("\\xff"),
                Number('{"a":1}{"a":1}'),
                [],
                None,
            )
        )
    return rng.choice((usual, usual, usual, {"progress": usual}))


def fault(rng: random.Random) -> Fault:
    begin, seconds = rng.choice((-40.0, 0.0, round(rng.uniform(0, 40), 1))), rng.choice((0.5, 5.0, 60.0, 300.0))
    plural = rng.choice(
        (
            "",
            "",
            "pods",
            "services",
            "configmaps",
            "persistentvolumeclaims",
            "networkpolicies",
            "events",
            "workloads",
            "podgroups",
            "jobs",
            "kueue.x-k8s.io",
            "scheduling.volcano.sh",
            "events.k8s.io",
            "apis",
        )
    )
    verb = rng.choice(("", "", "list", "watch", "get", "create", "patch", "delete"))
    where: dict[str, Any] = {
        "begin": begin,
        "seconds": seconds,
        "verb": verb,
        "plural": plural,
        "every": rng.choice((1, 1, 1, 2, 3)),
        "breaks": begin >= 0 and rng.random() < 0.5,
    }
    match rng.choice(("status", "status", "status", "cut", "silent", "date", "drops", "garbage", "one")):
        case "cut":
            return Fault(**where, cut=rng.choice((0, 1, 10, 11, 100, 101, 1000)))
        case "silent":
            return Fault(**where, silent=True)
        case "date":
            return Fault(begin, seconds, date=rng.choice((3600.0, -3600.0, 10.0, 10.0**8)), every=rng.choice((2, 3)))
        case "drops":
            field = rng.choice(
                (
                    "conditions",
                    "replicaStatuses",
                    "attempt",
                    "state",
                    "world",
                    "progress",
                    "goodput",
                    "nodeLosses",
                    "observedGeneration",
                    "dtj",
                    "queue",
                    "restarts",
                )
            )
            return Fault(begin, 10.0**6, verb="patch", drops=field)
        case "garbage":
            body = rng.choice(
                (
                    "",
                    "<html>",
                    "{}",
                    "[]",
                    "null",
                    '{"items":1}',
                    '{"items":[1]}',
                    '{"items":[{}]}',
                    '{"metadata":null}',
                    '{"items":null,"metadata":{}}',
                    "[" * 2000,
                    "9" * 5000,
                    '{"kind":"Status"}',
                    "\xff",
                )
            )
            return Fault(**where, status=rng.choice((200, 200, 200, 500, 204, 302)), body=body)
        case "one":
            name = rng.choice(
                ("digits", "digits-worker-0", "digits-worker-1", "late-worker-0", "late", "digits-tensorboard")
            )
            verb = rng.choice(("create", "patch", "delete", "get"))
            return Fault(
                0.0, 10.0**6, verb=verb, name=name, status=rng.choice((400, 403, 404, 409, 410, 422, 429, 500, 503))
            )
    retry = rng.choice(("", "", "1", "30", "3600", "inf", "-1", "nan", "x", "Wed, 21 Oct 2099 07:28:00 GMT", "1e400"))
    return Fault(
        **where,
        status=rng.choice((400, 401, 403, 404, 409, 410, 422, 429, 500, 502, 503, 504)),
        retry_after=retry,
        body=rng.choice(("", "x" * 5000, '{"kind":"Status","message":"no","code":500}')),
    )


def raises(rng: random.Random, where: str) -> Raises:
    error = rng.choice(("ZeroDivisionError", "ZeroDivisionError", "RecursionError", "KeyError", "TimeoutError"))
    return Raises(where, rng.choice((1, 1, 2, 3, 5, 10, 30)), error)
