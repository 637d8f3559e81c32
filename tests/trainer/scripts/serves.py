"""A plain script for ParameterServerStrategy: every role runs it, servers serve, the chief computes on them."""

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    server.join()

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    count = tf.Variable(0.0)


@tf.function
def add():
    count.assign_add(1.0)


for _ in range(5):
    coordinator.schedule(add)
coordinator.join()
print(f"count {float(count.numpy())}")
