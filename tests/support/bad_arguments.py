"""What the trainer says of a command line and an environment that it cannot use."""

from __future__ import annotations

import re

import pytest

from dtj_trainer.config.parsing import parse
from dtj_trainer.errors import UsageError


def refusal(given: str, **environ: str) -> str:
    """The one line with which they are refused, given as ``DTJ_ATTEMPT=two --epochs=5``; fails where they are not.

    Where it begins with the last word of what is given, that is left out: ``: give a whole number``.
    """
    words = given.split()
    variables = [word for word in words if re.match(r"[A-Z_]+=", word)]
    with pytest.raises(UsageError) as refused:
        parse(
            [word for word in words if word not in variables],
            {**environ, **dict(variable.split("=", 1) for variable in variables)},
        )
    text = str(refused.value)
    assert "\n" not in text
    return text.removeprefix(words[-1]) if words else text
