"""A plain script for MultiWorkerMirroredStrategy, as one finds them: it reads TF_CONFIG and knows nothing of us."""

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()


@tf.function
def together():
    return strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None)


print(f"workers {float(together())}", flush=True)
while True:
    together()
