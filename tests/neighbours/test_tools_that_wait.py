"""What kstatus (Helm, Flux), Argo CD, Argo Workflows, Katib and Airflow make of a job at each point of its life."""

from __future__ import annotations

import pytest

from support.lives import EXPECTED, points
from support.waiters import Waiters

pytestmark = pytest.mark.neighbours


def test_kstatus_finds_a_job_in_progress_current_or_failed_as_a_person_would(waiters: Waiters) -> None:
    assert waiters.ask("kstatus", objects=points()) == EXPECTED
