"""What the trainer says of a command line and an environment that it cannot use."""

from __future__ import annotations

import pytest

from dtj_trainer.config.parsing import parse
from dtj_trainer.errors import UsageError


def refusal(*argv: str, **environ: str) -> str:
    """The one line with which they are refused; fails where they are not."""
    with pytest.raises(UsageError) as refused:
        parse(argv, environ)
    text = str(refused.value)
    assert "\n" not in text
    return text
