"""One task of :mod:`start_gate`: late to its job, then the trainer's gate, then TensorFlow's first collective.

Runs in the trainer's environment. Prints one line of JSON: when it arrived at the gate, when it was through, and when
all tasks had added up their ones.
"""

import json
import sys
import time

delay, port, gate, *addresses = sys.argv[1:]
time.sleep(float(delay))

from dtj_launch.rendezvous import ReadinessListener, wait_for_peers  # noqa: E402

listener = ReadinessListener(int(port)) if gate == "gate" else None

import tensorflow as tf  # noqa: E402  # what takes longest comes while the start gate answers, as in the trainer

arrived = time.time()
if listener is not None:
    peers = {address: (address.rpartition(":")[0], int(address.rpartition(":")[2])) for address in addresses}
    wait_for_peers(peers, timeout=120)
    listener.close()
passed = time.time()
strategy = tf.distribute.MultiWorkerMirroredStrategy()
total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0)))
assert float(total) == len(addresses) + 1, total
print(json.dumps({"arrived": arrived, "passed": passed, "together": time.time()}), flush=True)
