"""What a cluster adds to pods: devices, defaults and containers of others."""

from __future__ import annotations

import pytest

from dtj.api.json import JsonObject, dig, objects
from support.job_world import JobWorld
from support.slots import Slots, await_bound

pytestmark = pytest.mark.usefixtures("operator")

RESOURCES = "/apis/resource.k8s.io/v1"


def test_a_limit_range_gives_each_container_its_defaults(world: JobWorld) -> None:
    limits: JsonObject = {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "500m"}}
    world.create("limitranges", {"metadata": {"name": "defaults"}, "spec": {"limits": [limits]}})
    world.begin(roles={"worker": 1})
    resources = dig(world.pods()["digits-worker-0"], "spec", "containers", 0, "resources")
    assert resources == {"limits": {"cpu": "2"}, "requests": {"cpu": "500m"}}


def test_the_network_of_the_host_and_sidecars_of_a_mesh_reach_the_pods(world: JobWorld) -> None:
    proxy: JsonObject = {"name": "istio-proxy", "image": "example/proxy:1", "restartPolicy": "Always"}
    spec: JsonObject = {
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "initContainers": [proxy],
        "containers": [{"name": "trainer", "image": "example/trainer:1"}],
    }
    world.begin(roles={"worker": 1}, template={"spec": spec})
    pod = world.pods()["digits-worker-0"]
    assert (dig(pod, "spec", "hostNetwork"), dig(pod, "spec", "dnsPolicy")) == (True, "ClusterFirstWithHostNet")
    assert dig(pod, "spec", "initContainers", 0, "restartPolicy") == "Always"


def test_each_pod_gets_a_device_of_its_own_by_a_claim_template(world: JobWorld) -> None:
    """The real controller makes the claims, and the real scheduler allocates the devices. The test plays the driver."""
    name = f"gpu-{world.namespace}"
    node = Slots(world.plane, name)
    node.create(6)
    driver = f"{world.namespace}.example.com"
    device_class: JsonObject = {
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]},
    }
    world.api.request("POST", f"{RESOURCES}/deviceclasses", device_class)
    pool: JsonObject = {"name": name, "generation": 1, "resourceSliceCount": 1}
    devices: JsonObject = {"driver": driver, "nodeName": name, "pool": pool}
    world.api.request(
        "POST",
        f"{RESOURCES}/resourceslices",
        {"metadata": {"name": name}, "spec": {**devices, "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}]}},
    )
    request: JsonObject = {"name": "one", "exactly": {"deviceClassName": name}}
    template: JsonObject = {"metadata": {"name": "gpu"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    claims = f"{RESOURCES}/namespaces/{world.namespace}"
    world.api.request("POST", f"{claims}/resourceclaimtemplates", template)
    spec: JsonObject = {
        "nodeSelector": {"slots": name},
        "tolerations": [{"operator": "Exists"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        "containers": [{"name": "trainer", "image": "example/trainer:1", "resources": {"claims": [{"name": "gpu"}]}}],
    }
    try:
        world.submit(roles={"worker": 2}, template={"spec": spec})
        await_bound(world, 2)
        made = objects(world.api.request("GET", f"{claims}/resourceclaims").get("items"))
        given = {str(dig(one, "status", "allocation", "devices", "results", 0, "device")) for one in made}
        assert given == {"gpu-0", "gpu-1"}
    finally:
        world.api.request("DELETE", f"{RESOURCES}/resourceslices/{name}")
        world.api.request("DELETE", f"{RESOURCES}/deviceclasses/{name}")
        node.delete()
