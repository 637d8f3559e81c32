"""The scheduler of the scheduler plugins of kubernetes-sigs, next to a control plane and its own scheduler."""

import json

from testbed import binaries, runs
from testbed.binaries import SCHEDULER_PLUGINS
from testbed.manager import Manager

PROGRAM = "scheduler-plugins"
SCHEDULER_NAME = "scheduler-plugins-scheduler"


class SchedulerPlugins(Manager):
    """The scheduler."""

    program = PROGRAM

    def install(self) -> None:
        """Have the API server serve the PodGroups, and wait until it does."""
        self._plane.install_crds(binaries.assets_of(SCHEDULER_PLUGINS), server_side=True)

    def start(self) -> None:
        """Start the scheduler, with coscheduling on. Pods that name it wait until it has synchronized."""
        configuration = self._plane.run / "scheduler-plugins.json"
        configuration.write_text(json.dumps(self._configuration()))
        program = binaries.ensure((PROGRAM,))[PROGRAM]
        command = [
            str(program),
            f"--config={configuration}",
            "--secure-port=0",
            # The plugin asks for no events of nodes: a gang that did not fit is tried again after this time alone, by
            # default 5 minutes (pkg/coscheduling, EventsToRegister).
            "--pod-max-in-unschedulable-pods-duration=5s",
        ]
        self._process.start(command, owner=runs.owner_of(self._plane.run))

    def _configuration(self) -> dict[str, object]:
        """Its manifests/coscheduling/scheduler-config.yaml, under the name that its Helm chart gives the scheduler."""
        coscheduling = {"name": "Coscheduling"}
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self._plane.kubeconfig)},
            "profiles": [
                {
                    "schedulerName": SCHEDULER_NAME,
                    "plugins": {
                        "multiPoint": {"enabled": [coscheduling]},
                        "queueSort": {"enabled": [coscheduling], "disabled": [{"name": "*"}]},
                    },
                    "pluginConfig": [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 10}}],
                }
            ],
        }
