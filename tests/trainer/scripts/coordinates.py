"""A session under ParameterServer: the chief schedules, and counts what it has joined."""

import sys

import tensorflow as tf

import dtj_trainer

TOTAL = int(sys.argv[1])

with dtj_trainer.session() as s:  # parameter servers and workers stay in here
    coordinator = tf.distribute.coordinator.ClusterCoordinator(s.strategy)
    with s.strategy.scope():
        total = tf.Variable(0.0)
    s.checkpoint(total=total)

    @tf.function
    def add():
        total.assign_add(1.0)

    for _ in s.steps(TOTAL):
        for _ in range(10):
            coordinator.schedule(add)
        coordinator.join()
        s.report(total=total)
    print(f"total {float(total.numpy())}")
