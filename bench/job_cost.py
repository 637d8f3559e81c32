"""What does a job cost the API server: calls and writes until it runs, and bytes in etcd?

    PYTHONPATH=operator:tests:trainer-image python bench/job_cost.py

A job of each size is created, its pods become ready, it runs, and it succeeds. The calls are those of the operator in
the audit log, without watches and leases. The bytes are the present values in etcd, in the form in which the API server
stores them: JSON for jobs, protobuf for the others. Former versions are not in them, which etcd keeps until its next
compaction.
"""

from __future__ import annotations

import time
from collections import Counter

import common
import crowd
import figures
from support.job_world import JobWorld
from support.operator_process import USER, OperatorProcess

KINDS = ("training.dtj.dev/distributedtrainingjobs", "pods", "services/specs", "services/endpoints", "configmaps")
SETTLE_SECONDS = 3.0


def main() -> None:
    parser = figures.parser(__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 100, 500], help="sizes (default 4 100 500)")
    figures.print_machine()
    with common.control_plane() as (plane, directory):
        for workers in parser.parse_args().workers:
            with (
                common.new_world(plane) as world,
                OperatorProcess.serving(plane, [world.namespace], log=directory / f"{workers}.log") as operator,
            ):
                operator.await_line("runs jobs")
                time.sleep(SETTLE_SECONDS)
                _measure(world, workers=workers)


def _measure(world: JobWorld, *, workers: int) -> None:
    before, mark = _sizes(world), world.plane.audit.mark()
    crowd.start_jobs(world, "digits", number=1, workers=workers)
    common.await_quiet(world.plane)
    print(f"a job of {workers} workers")
    figures.print_figure("calls until it runs", _calls(world, mark))
    running = _sizes(world)
    figures.print_figure("etcd while it runs", _bytes(before, running))
    world.end_pod("digits-0-worker-0", exit_code=0)
    crowd.await_states(world, "Succeeded", prefix="digits", number=1)
    common.await_quiet(world.plane)
    figures.print_figure("etcd at its end", _bytes(before, _sizes(world)))


def _calls(world: JobWorld, mark: int) -> str:
    calls = world.plane.audit.calls(since=mark, user=USER, namespace=world.namespace)
    kinds = Counter(
        f"{call.verb} {call.resource}{f'/{call.subresource}' if call.subresource else ''}"
        f"{' (dry run)' if call.dry_run else ''}"
        for call in calls
        if call.verb != "watch" and call.resource != "leases"
    )
    return f"{kinds.total()}: {', '.join(f'{number} {kind}' for kind, number in sorted(kinds.items()))}"


def _sizes(world: JobWorld) -> dict[str, int]:
    found: dict[str, int] = {}
    for kind in KINDS:
        found |= world.plane.etcd.sizes(f"/registry/{kind}/{world.namespace}/")
    return found


def _bytes(before: dict[str, int], after: dict[str, int]) -> str:
    """The objects that were added, by kind: number and mean size."""
    parts = []
    for kind in KINDS:
        sizes = [size for key, size in after.items() if key not in before and key.startswith(f"/registry/{kind}/")]
        if sizes:
            parts.append(f"{len(sizes)} {kind.rpartition('/')[2]} of {sum(sizes) / len(sizes):,.0f} bytes")
    return ", ".join(parts)


if __name__ == "__main__":
    main()
