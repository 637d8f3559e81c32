"""What a plan asks for, in short: tests compare and select actions by their kind and that of their object."""

from __future__ import annotations

from dtj.core.actions import Action, Create, Delete, Kind, Update
from dtj.core.observed import GangApi


def does(action: object, kind: type[Action], of: Kind | type[GangApi] | None = None) -> bool:
    """Whether an action is of a kind; ``of`` is what is created, changed or deleted."""
    if of is None or not isinstance(action, Create | Update | Delete):
        return isinstance(action, kind)
    return isinstance(action, kind) and (isinstance(action.kind, GangApi) if of is GangApi else action.kind == of)


def called(action: object) -> str:
    """An action in short, such as ``Create Service``; the kind of a gang is that of its object."""
    if not isinstance(action, Create | Update | Delete):
        return type(action).__name__
    return f"{type(action).__name__} {action.kind.kind if isinstance(action.kind, GangApi) else action.kind}"
