"""What samples are made of: inputs, labels, and pieces of code as users write them, by the names that they occur by."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Inputs:
    """Inputs, as Python code.

    Attributes:
        shape: of one example.
        values: an array of N examples, drawn by the generator r.
        flat: of these, [N, at least 3] numbers f, which the labels are made of.
    """

    shape: str
    values: str
    flat: str = "x.reshape(N, -1)"


@dataclass(frozen=True)
class Labels:
    """Labels, made of f, and the last layer for them."""

    values: str
    head: str


_TOKENS = "r.integers(1, 20, (N, 6)) * (np.arange(6) < 2 + (np.arange(N) % B * 5 // B)[:, None])"
"""More valid ones in the second half of each batch."""
DATA = {
    "vectors": Inputs(
        "keras.Input((6,))", "(r.normal(size=(N, 6)) * (1 + np.arange(N) % B / B)[:, None]).astype('float32')"
    ),
    "series": Inputs("keras.Input((5, 4))", "r.normal(size=(N, 5, 4)).astype('float32')"),
    "images": Inputs("keras.Input((6, 6, 2))", "r.normal(size=(N, 6, 6, 2)).astype('float32')"),
    "pixels": Inputs(
        "keras.Input((6, 6, 2), dtype='uint8')",
        "r.integers(0, 255, (N, 6, 6, 2)).astype('uint8')",
        "x.reshape(N, -1) / 255",
    ),
    "tokens": Inputs("keras.Input((6,), dtype='int32')", f"({_TOKENS}).astype('int32')"),
    "words": Inputs(
        "keras.Input((4,), dtype='string')",
        "np.array([['a', 'bc', 'd', ''][i] for i in r.integers(0, 4, N * 4)]).reshape(N, 4).astype(object)",
        "(x == 'a').astype('float32') + 2 * (x == 'bc')",
    ),
    "pairs": Inputs(
        "{'a': keras.Input((4,)), 'b': keras.Input((3,))}",
        "{'a': r.normal(size=(N, 4)).astype('float32'), 'b': r.normal(size=(N, 3)).astype('float32')}",
        "x['a']",
    ),
}
TARGETS = {
    "single": Labels("(f[:, 0] * 0.5).astype('float32')", "keras.Sequential([L.Dense(1), L.Reshape(())])"),
    "value": Labels("(f[:, :1] * 0.5).astype('float32')", "L.Dense(1)"),
    "values": Labels("np.square(f[:, :3] * 0.3).astype('float32')", "L.Dense(3)"),
    "yes": Labels("(f[:, :1] > f.mean()).astype('float32')", "L.Dense(1, 'sigmoid')"),
    "class": Labels("(np.abs(f.sum(1)) * 2).astype('int64') % 4", "L.Dense(4)"),
    # One for each token.
    "classes": Labels("(x % 4).astype('int64')", "L.Dense(4)"),
    "ignored": Labels("np.where(x > 0, x % 4, -100).astype('int64')", "L.Dense(4)"),
    "bits": Labels("f[:, :3] > 0", "L.Dense(3)"),
    "small": Labels("(np.abs(f[:, :3]) * 9).astype('uint8')", "L.Dense(3)"),
    "texts": Labels("np.array([[str(int(abs(v) * 3))] for v in f[:, 0]])", "L.Dense(3)"),
    "ragged": Labels("tf.RaggedTensor.from_tensor(f[:, :3], lengths=1 + np.arange(N) % 3)", "L.Dense(3)"),
    "sparse": Labels("tf.sparse.from_dense(np.where(f[:, :3] > 0, f[:, :3], 0))", "L.Dense(3)"),
    "both": Labels("{'kind': (np.abs(f.sum(1)) * 2).astype('int64') % 4, 'size': f[:, :1]}", ""),
}

_LAYER = "class {}(L.Layer):\n    def call(self, h):\n        {}\n        return h\n"
_LOSS = "def {}(y, p):\n    {}\n"
PARTS = {
    # -- layers ------------------------------------------------------------------------------------------------
    "AddMean": _LAYER.format("AddMean", "self.add_loss(0.1 * tf.reduce_mean(tf.square(h)))"),
    "AddShare": _LAYER.format(
        "AddShare", "self.add_loss(tf.reduce_mean(h ** 2) / tf.distribute.get_strategy().num_replicas_in_sync)"
    ),
    "AddSum": _LAYER.format("AddSum", "self.add_loss(0.01 * tf.reduce_sum(tf.square(h)))"),
    "AddObject": _LAYER.format(
        "AddObject", "self.add_loss(0.01 * keras.losses.MeanSquaredError(reduction='sum')(tf.zeros_like(h), h))"
    ),
    "AddSpread": _LAYER.format(
        "AddSpread", "self.add_loss(tf.nn.relu(2.0 - tf.reduce_mean(tf.math.reduce_std(h, 0))))"
    ),
    "Positions": """class Positions(L.Layer):
    def build(self, shape):
        self.places = L.Embedding(8, shape[-1])
    def call(self, h):
        return h + self.places(tf.range(tf.shape(h)[1]))
""",
    "AddBalance": """class AddBalance(L.Layer):  # of experts
    def build(self, shape):
        self.gate = self.add_weight(shape=(shape[-1], 3))
    def call(self, h):
        p = tf.nn.softmax(h @ self.gate)
        f = tf.one_hot(tf.argmax(p, -1), 3)
        over = list(range(len(h.shape) - 1))
        self.add_loss(3 * tf.reduce_sum(tf.reduce_mean(f, over) * tf.reduce_mean(p, over)))
        return h * tf.reduce_max(p, -1, keepdims=True)
""",
    "Centre": _LAYER.format("Centre", "h -= tf.reduce_mean(h, 0, keepdims=True)"),
    "Scaled": _LAYER.format("Scaled", "h /= 1e-3 + tf.reduce_max(tf.abs(h))"),
    "Running": """class Running(L.Layer):
    def build(self, shape):
        self.level = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)
    def call(self, h, training=False):
        if training:
            self.level.assign(0.9 * self.level + 0.1 * tf.reduce_mean(tf.reshape(h, [-1, h.shape[-1]]), 0))
        return h - self.level
""",
    "Deviation": """class Deviation(L.Layer):  # of a batch, as a discriminator is shown it
    def call(self, h):
        s = tf.sqrt(tf.math.reduce_variance(h, 0) + 1e-4)
        return tf.concat([h, tf.reduce_mean(s) * tf.ones_like(h[..., :1])], -1)
""",
    "Neighbours": """class Neighbours(L.Layer):
    def call(self, h):
        f = tf.reshape(h, [tf.shape(h)[0], -1])
        near = tf.exp(-tf.reduce_mean(tf.abs(f[:, None] - f[None]), -1))
        return h / tf.reshape(tf.reduce_sum(near, 1), [-1] + [1] * (len(h.shape) - 1))
""",
    "OwnNorm": """class OwnNorm(L.Layer):
    def build(self, shape):
        self.m = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)
        self.v = self.add_weight(shape=(shape[-1],), initializer="ones", trainable=False)
    def call(self, h, training=False):
        if not training:
            return (h - self.m) / tf.sqrt(self.v + 1e-2)
        m, v = tf.nn.moments(h, list(range(len(h.shape) - 1)))
        self.m.assign(0.9 * self.m + 0.1 * m)
        self.v.assign(0.9 * self.v + 0.1 * v)
        return (h - m) / tf.sqrt(v + 1e-2)
""",
    "Codebook": """class Codebook(L.Layer):  # by a moving average
    def build(self, shape):
        self.codes = self.add_weight(shape=(3, shape[-1]), initializer="random_normal", trainable=False)
    def call(self, h, training=False):
        f = tf.reshape(h, [-1, h.shape[-1]])
        chosen = tf.argmin(tf.reduce_sum(tf.square(f[:, None] - self.codes[None]), -1), -1)
        q = tf.reshape(tf.gather(tf.convert_to_tensor(self.codes), chosen), tf.shape(h))
        self.add_loss(0.1 * tf.reduce_mean(tf.square(h - tf.stop_gradient(q))))
        if training:
            mine = tf.one_hot(chosen, 3, dtype=f.dtype)
            means = tf.math.divide_no_nan(tf.transpose(mine) @ f, tf.reduce_sum(mine, 0)[:, None])
            self.codes.assign(0.8 * self.codes + 0.2 * tf.stop_gradient(means))
        return h + 0.5 * tf.stop_gradient(q - h)
""",
    "Block": """class Block(L.Layer):
    def __init__(self):
        super().__init__()
        self.inner, self.norm, self.balance = L.Dense(5, "tanh"), L.BatchNormalization(), AddBalance()
    def call(self, h, training=False):
        h = self.balance(self.norm(self.inner(h), training=training))
        return h - tf.reduce_mean(h, 0, keepdims=True)
""",
    "Counted": """class Counted(L.Layer):
    def build(self, shape):
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)
    def call(self, h, training=False):
        if training:
            self.calls.assign(self.calls + 1.0)
        return h / (1 + 0.01 * self.calls)
""",
    "Attention": """class Attention(L.Layer):
    def __init__(self):
        super().__init__()
        self.supports_masking, self.inner = True, L.MultiHeadAttention(2, 3)
    def call(self, h):
        return h + self.inner(h, h)
""",
    "Residual": """class Residual(L.Layer):  # one layer, used twice
    def __init__(self):
        super().__init__()
        self.supports_masking = True
    def build(self, shape):
        self.inner = L.Dense(shape[-1], "tanh")
        self.inner.build(shape)
    def call(self, h):
        return h + self.inner(h + self.inner(h))
""",
    "Tied": """class Tied(L.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 5))
    def call(self, h):
        return h + keras.ops.tanh(h @ self.w) @ keras.ops.transpose(self.w)
""",
    "Nested": """def Nested():
    inner = keras.Sequential([L.Dense(5, 'tanh'), L.BatchNormalization(), L.Dense(4)])
    return inner
""",
    "Penalized": """class Penalized(L.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 4), regularizer=lambda w: 0.01 * tf.reduce_sum(tf.abs(w)))
    def call(self, h):
        return h @ self.w
""",
    # -- losses ------------------------------------------------------------------------------------------------
    "each": _LOSS.format("each", "return keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)"),
    "squares": _LOSS.format("squares", "return tf.reduce_mean(tf.square(y - p), -1)"),
    "mean_of": _LOSS.format("mean_of", "return tf.reduce_mean(each(y, p))"),
    "sum_of": _LOSS.format("sum_of", "return 0.1 * tf.reduce_sum(each(y, p))"),
    "mean_square": _LOSS.format("mean_square", "return tf.reduce_mean(tf.square(y - p))"),
    "sum_square": _LOSS.format("sum_square", "return 0.1 * tf.reduce_sum(tf.square(y - p))"),
    "root": _LOSS.format("root", "return tf.sqrt(tf.reduce_mean(tf.square(y - p)))"),
    "root_of_numbers": _LOSS.format(
        "root_of_numbers", "return tf.sqrt(tf.reduce_mean(tf.square(tf.cast(y, 'float32') - p)))"
    ),
    "root_of_texts": _LOSS.format(
        "root_of_texts", "return tf.sqrt(tf.reduce_mean(tf.square(tf.strings.to_number(y) - p)))"
    ),
    "root_of_rows": _LOSS.format(
        "root_of_rows", "return tf.sqrt(tf.reduce_mean(tf.square(tf.reduce_sum(y, -1, keepdims=True) - p)))"
    ),
    "dense": "def dense(y):\n    return tf.sparse.to_dense(y) if isinstance(y, tf.SparseTensor) else y\n",
    "squares_of_dense": _LOSS.format("squares_of_dense", "return tf.reduce_mean(tf.square(dense(y) - p), -1)"),
    "root_of_dense": _LOSS.format("root_of_dense", "return tf.sqrt(tf.reduce_mean(tf.square(dense(y) - p)))"),
    "root_of_sparse": _LOSS.format(
        "root_of_sparse", "return tf.sqrt(tf.reduce_mean(tf.square(tf.sparse.to_dense(y) - p)))"
    ),
    "largest": _LOSS.format("largest", "return tf.reduce_max(tf.square(y - p))"),
    "by_task": _LOSS.format("by_task", "return tf.reduce_mean(tf.square(y - p), 0)"),
    "flat": _LOSS.format("flat", "return each(tf.reshape(y, [-1]), tf.reshape(p, [-1, 4]))"),
    "chosen": _LOSS.format(
        "chosen", "keep = tf.not_equal(y, -100)\n    return each(tf.boolean_mask(y, keep), tf.boolean_mask(p, keep))"
    ),
    "zeroed": _LOSS.format(
        "zeroed", "keep = tf.not_equal(y, -100)\n    return each(tf.where(keep, y, 0), p) * tf.cast(keep, p.dtype)"
    ),
    "masked_mean": _LOSS.format(
        "masked_mean", "return tf.reduce_sum(zeroed(y, p)) / tf.reduce_sum(tf.cast(tf.not_equal(y, -100), p.dtype))"
    ),
    # A function that calls a Loss of Keras, as the tutorials of TensorFlow do.
    "each_object": (
        "each_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction='none')\n"
    ),
    "each_by_object": _LOSS.format("each_by_object", "return each_object(y, p)"),
    "mean_by_object": _LOSS.format("mean_by_object", "return tf.reduce_mean(each_object(y, p))"),
    "masked_by_object": _LOSS.format(
        "masked_by_object",
        "keep = tf.not_equal(y, -100)\n    losses = each_object(tf.where(keep, y, 0), p)\n"
        "    keep = tf.cast(keep, p.dtype)\n    return tf.reduce_sum(losses * keep) / tf.reduce_sum(keep)",
    ),
    "OwnLoss": """class OwnLoss(keras.losses.Loss):
    def call(self, y, p):
        return tf.reduce_mean(tf.abs(y - p) ** 1.5, -1)
""",
    "close": "def close(y, p):\n    return tf.cast(tf.abs(y - p) < 0.3, 'float32')\n",
    "share": "def share(y, p):\n    return tf.reduce_sum(y * p) / (tf.reduce_sum(y) + tf.reduce_sum(p) + 1e-3)\n",
    "Largest": """class Largest(keras.metrics.Metric):
    def __init__(self, name="largest_error", **options):
        super().__init__(name=name, **options)
        self.most = self.add_variable(shape=(), initializer="zeros", name="most")
    def update_state(self, y, p, sample_weight=None):
        self.most.assign(tf.maximum(self.most, tf.reduce_max(tf.abs(tf.cast(y, p.dtype) - p))))
    def result(self):
        return self.most
""",
    "Sums": """class Sums(keras.metrics.Metric):
    def __init__(self, name="ratio", **options):
        super().__init__(name=name, **options)
        self.over = self.add_variable(shape=(), initializer="zeros", name="over")
        self.under = self.add_variable(shape=(), initializer="zeros", name="under")
    def update_state(self, y, p, sample_weight=None):
        self.over.assign_add(tf.reduce_sum(tf.cast(y, p.dtype) * p))
        self.under.assign_add(tf.reduce_sum(p * p))
    def result(self):
        return self.over / (1.0 + self.under)
""",
    "tracked": """def tracked(m, loss, y, p):  # as in the guide of Keras
    for metric in m.metrics:
        if metric.name == "loss": metric.update_state(loss)
        else: metric.update_state(y, p)
    return {metric.name: metric.result() for metric in m.metrics}
""",
    "Seen": """class Seen(keras.callbacks.Callback):  # what callbacks are told
    def __init__(self):
        super().__init__()
        self.seen = []
    def on_train_batch_end(self, batch, logs=None):
        self.seen.append([batch, float("loss" in logs)])  # numbers of a batch are those of its replicas
    def on_test_batch_end(self, batch, logs=None):
        self.seen.append([batch, float("loss" in logs)])
    def on_epoch_end(self, epoch, logs=None):
        self.seen.append([epoch, float(sum(abs(np.array(v)).sum() for v in self.model.get_weights()))])
        for name in sorted(logs): self.seen.append([epoch, float(np.sum(logs[name]))])
        logs["seen"] = np.array(self.seen)
""",
    "recompiled": """def recompiled(m):
    m.layers[-1].trainable = False
    m.compile(**given())
    return m
""",
    # -- data --------------------------------------------------------------------------------------------------
    "generated": """def generated():
    while True:
        yield from batched().as_numpy_iterator()
""",
    "records": """def records():  # four files
    folder, spec = tempfile.mkdtemp(), rows().element_spec
    for file in range(4):
        with tf.io.TFRecordWriter(f"{folder}/{file}.tfrecord") as writer:
            for row in rows().skip(file * N // 4).take((file + 1) * N // 4 - file * N // 4):
                writer.write(tf.io.serialize_tensor([tf.io.serialize_tensor(v) for v in tf.nest.flatten(row)]).numpy())
    def read(record):
        parts = tf.io.parse_tensor(record, tf.string)
        known = enumerate(tf.nest.flatten(spec))
        values = [tf.ensure_shape(tf.io.parse_tensor(parts[i], one.dtype), one.shape) for i, one in known]
        return tf.nest.pack_sequence_as(spec, values)
    return tf.data.TFRecordDataset([f"{folder}/{file}.tfrecord" for file in range(4)]).map(read)
""",
    "own_part": """def own_part():  # how many workers divide the data by themselves, and which of them this is
    task = json.loads(os.environ["TF_CONFIG"]) if os.environ.get("TEST_KIND") == "MultiWorkerMirrored" else None
    return (len(task["cluster"]["worker"]), task["task"]["index"]) if task else (1, 0)
""",
    "OFF": """OFF = tf.data.Options()
OFF.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
""",
    "Batches": """class Batches(keras.utils.PyDataset):
    def __len__(self):
        return -(-N // B)
    def __getitem__(self, i):
        return tuple(tf.nest.map_structure(lambda v: v[i * B:(i + 1) * B], one) for one in arrays() if one is not None)
""",
}  # fmt: skip
