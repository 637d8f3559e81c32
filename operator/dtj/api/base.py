"""What all models of the specification have in common."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

MAX_SETS: Final = 1000
"""This many sets are shared. Users decide which fields there are, and must not fill the memory with sets."""

_SETS: Final[dict[frozenset[str], set[str]]] = {}


class SharedFieldsSet(BaseModel):
    """A model that nobody changes, with its ``model_fields_set`` shared by all models that were given the same fields.

    Each set takes 0.2 to 0.7 KB, in each condition of each job, and there are only some different ones.
    """

    def model_post_init(self, context: Any, /) -> None:
        given = self.model_fields_set
        shared = _SETS.get(frozenset(given))
        if shared is not None:
            object.__setattr__(self, "__pydantic_fields_set__", shared)
        elif len(_SETS) < MAX_SETS:
            _SETS[frozenset(given)] = given


class SpecModel(SharedFieldsSet):
    """A part of what users write: in camel case, never changed once it is read.

    Unknown fields are ignored: they come from a CRD that is newer than this operator, as after a rollback, and a field
    with a default is then in every job. Typing mistakes are refused by the CRD's schema, which the API server and
    ``dtj validate`` check.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)
