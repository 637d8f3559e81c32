"""What all models of the specification have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class SpecModel(BaseModel):
    """A part of what users write: in camel case, never changed once it is read.

    Unknown fields are ignored: they come from a CRD that is newer than this operator, as after a rollback, and a field
    with a default is then in every job. Typing mistakes are refused by the CRD's schema, which the API server and
    ``dtj validate`` check.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)
