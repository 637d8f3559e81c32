"""Commands that are printed work as they stand: they concern the job that was meant, whichever its namespace is."""

from __future__ import annotations

import click
import pytest

from dtj.cli.common.connection import commands_in, next_kubectl


@pytest.mark.parametrize(
    ("given", "namespace", "printed"),
    [
        (None, "default", "dtj delete digits"),
        (None, "team-a", "dtj delete digits -n team-a"),
        ("team-a", "team-a", "dtj delete digits -n team-a"),
    ],
)
def test_the_namespace_of_a_job_is_named_where_it_is_not_the_usual_one(
    given: str | None, namespace: str, printed: str
) -> None:
    with click.Context(click.Command("submit"), info_name="dtj") as context:
        context.params = {"namespace": given}
        assert commands_in(namespace, usual="default")("delete", "digits") == printed


def test_a_command_of_kubectl_has_the_options_that_were_given() -> None:
    with click.Context(click.Command("tensorboard"), info_name="dtj") as context:
        context.params = {"namespace": "default", "context": "far", "kubeconfig": None}
        assert next_kubectl("logs", "a") == "kubectl logs a -n default --context far"
