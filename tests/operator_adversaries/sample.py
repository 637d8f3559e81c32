"""What happens to an operator at work: a sample. Jobs run, and it is done to one of them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from operator_adversaries.wire import Fault, Load

Path = tuple[str | int, ...]
"""Where in an object."""


@dataclass(frozen=True)
class Act:
    """Something that somebody does, so many seconds after the jobs run."""

    at: float


@dataclass(frozen=True)
class Edit(Act):
    """An object that is there gets these values at these places; ``pick`` says which of its kind."""

    plural: str
    pick: int
    edits: tuple[tuple[Path, Any], ...]
    times: int = 1
    """So often in a row: the objects changes each time."""


@dataclass(frozen=True)
class Make(Act):
    """Somebody makes an object as one of its kind that is there, but for these values."""

    plural: str
    pick: int
    name: str
    edits: tuple[tuple[Path, Any], ...]
    owned: bool
    """Whether it says that the same job owns it."""


@dataclass(frozen=True)
class Delete(Act):
    """Somebody deletes an object. It stays where a finalizer or a kubelet holds it, until so many seconds are over."""

    plural: str
    pick: int
    grace: int
    stays: float = 0.0


@dataclass(frozen=True)
class Submit(Act):
    """A user makes a job with these values in it; ``status`` is what it has from elsewhere."""

    name: str
    edits: tuple[tuple[Path, Any], ...]


ALL = -1
"""In place of a pick: each of the pods."""


@dataclass(frozen=True)
class Ends(Act):
    """The container of a pod ends with this code, and these last words."""

    pick: int
    code: int
    message: Any


@dataclass(frozen=True)
class Raises:
    """The call of a function of the operator that raises, counted from 1."""

    where: str
    call: int
    error: str


@dataclass(frozen=True)
class Answer:
    """What a pod answers on its status port.

    Attributes:
        body: JSON, or what should be.
        head: the first line of the answer.
        pieces: in so many parts.
        pause: seconds between two of them.
        endless: begun again and again.
    """

    body: Any
    head: str = "HTTP/1.0 200 OK"
    pieces: int = 1
    pause: float = 0.0
    endless: bool = False


@dataclass(frozen=True)
class Sample:
    """A sample.

    Attributes:
        form: of the jobs: DistributedTrainingJob or TFJob.
        shape: of the job that it is done to: a name in `play.SHAPES`.
        policies: whether jobs get NetworkPolicies.
        acts: what is done, in the order of time.
        answers: what pods of that job answer, in turn.
        faults: how the API server answers for some time.
        raises: what goes wrong within.
        load: how much there is to do; None for little.
    """

    form: str = "DistributedTrainingJob"
    shape: str = "fixed"
    policies: bool = False
    acts: tuple[Act, ...] = ()
    answers: tuple[Answer, ...] = ()
    faults: tuple[Fault, ...] = ()
    raises: tuple[Raises, ...] = field(default=())
    load: Load | None = None

    def __str__(self) -> str:
        """What differs from the simplest sample."""
        differs = [f"{one.name}={value!r}" for one in fields(self) if (value := getattr(self, one.name)) != one.default]
        return f"Sample({', '.join(differs)})"
