"""From the moment that a worker is gone to the end of its peer with exit code 75 (PeerLost).

    PYTHONPATH=trainer-image:bench:tests .venv-trainer/bin/python bench/trainer/peer_lost.py [--rounds 3]

Two workers train, without a launcher. One, the leader or the other, is killed with SIGKILL (its connections close at
once) or stopped with SIGSTOP (to its peer, a network that swallows everything). Seconds; the design asks for 10.
"""

from __future__ import annotations

import signal
import statistics
import tempfile
import time
from pathlib import Path

import figures
from trainer.cluster import Job

HOW = {"killed": signal.SIGKILL, "silent": signal.SIGSTOP}
LIMIT = 60.0


def seconds_to_the_end(folder: Path, *, strategy: str, victim: str, how: signal.Signals) -> float:
    """One loss; seconds until the other worker has ended."""
    arguments = ["--epochs=100000", "--batch-size=48", "--checkpoint-every-steps=20"]
    with Job(folder, strategy=strategy, roles={"worker": 2}, arguments=arguments) as job:
        job.start().wait_for_checkpoint(20)
        began = time.monotonic()
        job[victim].kill(how)
        survivor = job["worker-1" if victim == "worker-0" else "worker-0"]
        code = survivor.wait(LIMIT)
        took = time.monotonic() - began
        if code != 75:
            raise SystemExit(f"{victim} {how.name}: its peer ended with {code}, not 75\n{survivor.log}")
        return took


def main() -> None:
    arguments = figures.parser(__doc__, rounds=(3, "how often each is measured")).parse_args()
    figures.print_machine()
    cases = [("MultiWorkerMirrored", victim) for victim in ("worker-0", "worker-1")] + [("Pipeline", "worker-1")]
    for strategy, victim in cases:
        for name, how in HOW.items():
            taken = []
            for _ in range(arguments.rounds):
                with tempfile.TemporaryDirectory() as folder:
                    taken.append(seconds_to_the_end(Path(folder), strategy=strategy, victim=victim, how=how))
            shown = ", ".join(f"{seconds:.1f}" for seconds in taken)
            print(f"{strategy:<20} {victim} {name}  {statistics.median(taken):5.1f} s  ({shown})", flush=True)


if __name__ == "__main__":
    main()
