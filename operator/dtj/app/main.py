"""``dtj-operator``: the command that runs in the cluster, or on a laptop with a kubeconfig.

Exit codes: 0 stopped by a signal, 1 a defect ended it, 2 a setting cannot be used, 3 the lease was lost, 4 the API
server refuses us.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import click

from dtj import __version__
from dtj.api.spec import CleanPodPolicy, Gang
from dtj.app.health import HealthPortTaken
from dtj.app.run import run
from dtj.app.settings import OperatorSettings, SettingsError, job_access
from dtj.app.startup import CredentialsRefused
from dtj.app.watch import QuietRetries
from dtj.core.platform import TRAINER_LOG_FORMATS, JobAccess
from dtj.engine import logs
from dtj.kube.config import ConfigError
from dtj.kube.lease import LeaseLost

log = logging.getLogger("dtj.app")

EXIT_DEFECT = 1
EXIT_USAGE = 2
EXIT_LEASE_LOST = 3
EXIT_API = 4

F = TypeVar("F", bound=Callable[..., Any])


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(OperatorSettings)}


def _option(name: str, **attributes: Any) -> Callable[[F], F]:
    """An option of the same name as a setting, with that setting's default."""
    default = str(_DEFAULTS[name]) if isinstance(_DEFAULTS[name], Enum) else _DEFAULTS[name]
    return click.option(
        f"--{name.replace('_', '-')}", default=default, show_default=default not in (None, False), **attributes
    )


def _job_access(context: click.Context, parameter: click.Parameter, value: str | None) -> JobAccess | None:
    try:
        return job_access(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _log_format(context: click.Context, parameter: click.Parameter, value: str) -> logs.LogFormat:
    return logs.LogFormat(value)


@click.command(context_settings={"auto_envvar_prefix": "DTJ_OPERATOR", "help_option_names": ["-h", "--help"]})
@click.option(
    "--namespace",
    "-n",
    "namespaces",
    multiple=True,
    envvar="DTJ_OPERATOR_NAMESPACE",
    help="Run the jobs of this namespace only. You can repeat this option.",
)
@click.option("--all-namespaces", "-A", is_flag=True, help="Run the jobs of all namespaces. This is the default.")
@_option(
    "kubeconfig", type=click.Path(), help="Kubeconfig file. In a cluster, the default is the pod's service account."
)
@_option("context", help="Context of the kubeconfig. The default is its current context.")
@_option(
    "workers", type=click.IntRange(1, 256), help="Number of jobs of a namespace that are reconciled at the same time."
)
@_option("relist_seconds", type=click.FloatRange(min=1.0), help="Seconds between two full lists of jobs.")
@_option("leader_elect", is_flag=True, help="Run jobs only while this operator holds a lease.")
@_option("lease_namespace", help="Namespace of the lease. Required with --leader-elect.")
@_option("lease_name", help="Name of the lease.")
@_option("accelerator_profiles", type=click.Path(path_type=Path), help="YAML file of accelerator profiles.")
@_option("restricted", is_flag=True, help='Make pods meet the Pod Security Standard "restricted".')
@_option("trainer_image", help="Image for trainer containers whose template has no image.")
@_option(
    "trainer_log_format",
    type=click.Choice(TRAINER_LOG_FORMATS),
    help="Format of the trainer's log lines in all jobs: DTJ_LOG_FORMAT of each container.",
)
@_option(
    "network_policies",
    metavar="JSON",
    callback=_job_access,
    help="Create a NetworkPolicy for each job that admits its own pods and these peers: "
    '{"statusFrom": [PEER...], "tensorBoardFrom": [PEER...]}.',
)
@_option("tfjobs", is_flag=True, help="Also run TFJobs of Kubeflow.")
@_option(
    "tfjob_clean_pod_policy",
    type=click.Choice(list(map(str, CleanPodPolicy))),
    callback=lambda context, parameter, value: CleanPodPolicy(value),
    help="cleanPodPolicy of TFJobs that name none.",
)
@_option(
    "tfjob_gang_scheduler",
    type=click.Choice(list(map(str, (Gang.NONE, Gang.VOLCANO, Gang.COSCHEDULING)))),
    callback=lambda context, parameter, value: Gang(value),
    help="Scheduler that starts all pods of a TFJob or none.",
)
@_option(
    "tfjob_cluster_domain",
    metavar="DOMAIN",
    envvar=["DTJ_OPERATOR_TFJOB_CLUSTER_DOMAIN", "CUSTOM_CLUSTER_DOMAIN"],
    help="What ends the addresses in TF_CONFIG of TFJobs. Also read from CUSTOM_CLUSTER_DOMAIN, as Kubeflow calls it.",
)
@_option("tfjob_queues", is_flag=True, help="Queue TFJobs in Kueue, whose own integration for them must be off.")
@_option("health_port", type=click.IntRange(0, 65535), help="Port of /healthz and /readyz. 0 disables them.")
@_option("metrics_port", type=click.IntRange(0, 65535), help="Port of /metrics. 0 disables it.")
@_option(
    "log_format", type=click.Choice(list(map(str, logs.LogFormat))), callback=_log_format, help="Format of the log."
)
@_option("verbose", is_flag=True, help="Also log debug messages.")
@click.version_option(__version__, prog_name="dtj-operator", message="%(prog)s %(version)s")
def main(*, namespaces: tuple[str, ...], all_namespaces: bool, **options: Any) -> None:
    """Run DistributedTrainingJobs: watch them, create their pods, and keep their status.

    Every option can also be set by an environment variable: DTJ_OPERATOR_ and its name in capitals.
    """
    if namespaces and all_namespaces:
        raise click.UsageError("--namespace and --all-namespaces exclude each other")
    if options["leader_elect"] and not options["lease_namespace"]:
        raise click.UsageError("--leader-elect needs --lease-namespace")
    sys.exit(operate(OperatorSettings(namespaces=namespaces, **options)))


def operate(settings: OperatorSettings) -> int:
    """Run the operator to its end. Returns the exit code."""
    _configure_logs(settings)
    try:
        asyncio.run(run(settings))
    except (SettingsError, ConfigError, HealthPortTaken) as error:
        log.error("%s", error)
        return EXIT_USAGE
    except LeaseLost as error:
        log.error("%s; the operator exits because another operator may lead now", error)
        return EXIT_LEASE_LOST
    except CredentialsRefused as error:
        log.error("%s", error)
        return EXIT_API
    except Exception:
        log.exception("a part of the operator ended; the operator exits")
        return EXIT_DEFECT
    log.info("dtj-operator has stopped; jobs continue to run")
    return 0


def _configure_logs(settings: OperatorSettings) -> None:
    level = logging.DEBUG if settings.verbose else logging.INFO
    logs.configure(settings.log_format, level=level, filters=(QuietRetries(),))
    if not settings.verbose:
        logging.getLogger("kopf").setLevel(logging.WARNING)
        logging.getLogger("asyncio").setLevel(logging.WARNING)


if __name__ == "__main__":
    main()
