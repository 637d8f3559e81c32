"""One sample: what a user writes, as a value that can be made simpler, and as the text of a Python file."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from trainer.adversaries.parts import DATA, PARTS, TARGETS

MODEL, SCRIPT, SESSION = "model", "script", "session"
ONE, MIRRORED, TWO = "OneDevice", "Mirrored", "MultiWorkerMirrored"
PIPELINE, CENTRAL, SERVERS = "Pipeline", "CentralStorage", "ParameterServer"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Each default is the simplest value. Texts are Python code, in which names of `parts.PARTS` may occur.

    Attributes:
        way: how the trainer gets it: `--model`, the `fit` of a script, or `fit` in a session.
        strategy: on how many replicas.
        resumed: whether it is stopped once in the middle, and goes on.
        data: the name of its inputs in `parts.DATA`.
        target: the name of its labels in `parts.TARGETS`.
        weights: of the examples, an expression of their number N and batch size B.
        layers: between inputs and head.
        kind: of the model: functional, sequential, or subclassed.
        outputs: a second output, for inputs that are a dict.
        compiled: arguments of `compile` by name, next to loss and optimizer.
        own: bodies of methods of the model by name.
        outside: whether loss, optimizer and metrics are made before the scope of the strategy.
        policy: of all layers, the name of a dtype.
        feed: how `fit` of a script gets the data.
        fit: further arguments of this `fit`.
        calls: what the script does after it.
        replicas: of Mirrored.
    """

    way: str = SCRIPT
    strategy: str = MIRRORED
    resumed: bool = False
    data: str = "vectors"
    target: str = "value"
    weights: str = ""
    layers: tuple[str, ...] = ()
    kind: str = "functional"
    loss: str = "'mse'"
    optimizer: str = "keras.optimizers.SGD(0.05)"
    compiled: tuple[tuple[str, str], ...] = ()
    own: tuple[tuple[str, str], ...] = ()
    outside: bool = False
    policy: str = ""
    replicas: int = 2
    feed: str = "batched()"
    fit: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    examples: int = 32
    batch: int = 8
    epochs: int = 1

    def __str__(self) -> str:
        """What differs from the simplest sample."""
        differs = [f"{one.name}={value!r}" for one in fields(self) if (value := getattr(self, one.name)) != one.default]
        return f"Sample({', '.join(differs)})"

    @property
    def arguments(self) -> list[str]:
        """Of the trainer."""
        if self.way != MODEL:
            return ["--script=sample.py"]
        given = {"model": "sample:model", "data": "sample:data", "epochs": self.epochs, "batch-size": self.batch}
        return ["--no-shuffle", *(f"--{name}={value}" for name, value in given.items())]

    @property
    def test_kind(self) -> str:
        """What tells a script how it is run."""
        return SESSION if self.way == SESSION else self.strategy

    @property
    def source(self) -> str:
        """The file: plain Python trains on one device, as the judge; the trainer takes what it needs of it."""
        body = "".join(self._sections())
        used: dict[str, str] = {}
        for name, text in reversed(PARTS.items()):  # a part uses only parts before it
            if re.search(rf"\b{name}\b", "\n".join([body, *used.values()])):
                used[name] = text
        command = f"TEST_KIND={self.test_kind} python -m dtj_trainer {' '.join(self.arguments)}"
        library = "tf_keras" if self.strategy == SERVERS else "keras"
        begin = _BEGIN.format(self=self, command=command, library=library)
        return "".join([begin, *reversed(used.values()), body])

    def _sections(self) -> list[str]:
        head = TARGETS[self.target].head
        given = {"loss": self.loss, "optimizer": self.optimizer, **dict(self.compiled)}
        compiled = ", ".join(f"{name}={value}" for name, value in given.items())
        policy = f"    keras.config.set_dtype_policy('{self.policy}')\n" if self.policy else ""
        methods = "\n".join(body for _, body in self.own) or "    pass"
        layers = f"[{', '.join(self.layers)}]"
        base = "keras.Sequential" if self.kind == "sequential" else "keras.Model"
        if self.kind == "subclassed":
            methods += (
                f"\n    def __init__(self):\n        super().__init__()\n        self.parts = {layers}"
                f"\n        self.head = {head}\n    def call(self, h):\n        for layer in self.parts: h = layer(h)"
                "\n        return self.head(h)"
            )
        return [
            f"\nclass Own({base}):\n{methods}\n\ndef given():\n    return dict({compiled})\n\n",
            f"\ndef model(made=None):\n{policy}",
            *(f"    {line}\n" for line in self._building(layers, head)),
            "    m.compile(**(made or given()))\n    return m\n\n",
            f"def arrays():\n    r = np.random.default_rng(1)\n    x = {DATA[self.data].values}\n",
            f"    f = {DATA[self.data].flat}\n    y = {TARGETS[self.target].values}\n",
            f"    return x, y, {self.weights or 'None'}\n",
            _ROWS,
            _AS_MODEL if self.way == MODEL else "",
            f"\ndef train(m):\n{self._training()}\n    return told\n",
            _MAIN.format(outside="given()" if self.outside else "None", self=self),
        ]

    def _building(self, layers: str, head: str) -> list[str]:
        if self.kind == "subclassed":
            return ["m = Own()"]
        shape = DATA[self.data].shape
        if self.kind == "sequential":
            return [f"m = Own([{shape}, *{layers}, {head}])"]
        if self.data == "pairs":
            return [
                f"x = {shape}", "h = L.Concatenate()([L.Dense(5, 'tanh')(x['a']), x['b']])",
                f"for layer in {layers}: h = layer(h)",
                "m = Own(x, {'kind': L.Dense(4, name='kind')(h), 'size': L.Dense(1, name='size')(h)})",
            ]  # fmt: skip
        return [f"x = h = {shape}", f"for layer in {layers}: h = layer(h)", f"m = Own(x, {head}(h))"]

    def _training(self) -> str:
        if self.way == MODEL:
            return (
                # Batches run on over the end of an epoch, as the trainer's.
                f"    m.fit(rows().repeat().batch(B).take(-(-N * {self.epochs} // B)), verbose=0)\n"
                "    told = m.evaluate(held_out().batch(B), return_dict=True, verbose=0)"
            )
        if self.way == SESSION:
            return (
                f"    steps = -(-N * {self.epochs} // B)\n    done = s.step if s else 0\n    told = {{}}\n"
                # It may have been stopped after its last step, and Keras takes no data without an example.
                "    if done < steps:\n"
                f"        told = m.fit(rows().repeat({self.epochs}).batch(B).skip(done), steps_per_epoch=steps - done, "
                "verbose=0, callbacks=[s.callback()] if s else []).history"
                + ("\n    told = {}  # of the steps since it went on" if self.resumed else "")
            )
        options = ", ".join((self.feed, f"epochs={self.epochs}", "verbose=0", *self.fit))
        calls = "".join(f"\n    told['{name}'] = {_CALLS[name]}" for name in self.calls)
        return f"    told = m.fit({options}).history{calls}"


_CALLS = {
    "evaluate": "m.evaluate(batched(), return_dict=True, verbose=0)",
    "predict": "m.predict(batched(), verbose=0)",
    "train_on_batch": "[m.train_on_batch(*some(5), return_dict=True) for _ in range(2)]",
    "test_on_batch": "m.test_on_batch(*some(1), return_dict=True)",
    "predict_on_batch": "m.predict_on_batch(some(1)[0])",
    "evaluate_arrays": (
        "m.evaluate(*arrays()[:2], sample_weight=arrays()[2], batch_size=7, return_dict=True, verbose=0)"
    ),
    "predict_arrays": "m.predict(arrays()[0], batch_size=7, verbose=0)",
    "again": "m.fit(batched(), verbose=0).history",
    "recompiled": "recompiled(m).fit(batched(), verbose=0).history",
    "later": "m.fit(batched(), epochs=3, initial_epoch=2, verbose=0).history",
}
CALLS = tuple(_CALLS)
PREDICT_FILES = "predict_files"
_CALLS[PREDICT_FILES] = "m.predict(records().batch(B), verbose=0)"

_BEGIN = """# Plain Keras: python sample.py. The trainer, {self.strategy}:
# {command}
import contextlib, json, os, tempfile, numpy as np, tensorflow as tf, {library} as keras
from {library} import layers as L
from keras import tree
N, B = {self.examples}, {self.batch}

"""
_ROWS = """
def some(n):
    return [None if one is None else tf.nest.map_structure(lambda v: v[:n], one) for one in arrays()]

def rows():
    return tf.data.Dataset.from_tensor_slices(tuple(one for one in arrays() if one is not None))

def batched():
    return rows().batch(B)
"""
_AS_MODEL = """
def held_out():
    return rows().take(2)  # one batch, also of a replica

def data():
    return {"training": rows(), "held_out": held_out()}
"""
_MAIN = """
if __name__ == "__main__":
    how, s, scope = os.environ.get("TEST_KIND", "plain"), None, contextlib.nullcontext()
    with contextlib.ExitStack() as stack:
        if how == "session":
            import dtj_trainer
            s = stack.enter_context(dtj_trainer.session())
            scope = s.strategy.scope()
        elif how == "Mirrored":
            tf.config.set_logical_device_configuration(
                tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * {self.replicas})
            scope = tf.distribute.MirroredStrategy([f"CPU:{{i}}" for i in range({self.replicas})]).scope()
        elif how == "MultiWorkerMirrored":
            scope = tf.distribute.MultiWorkerMirroredStrategy().scope()
        elif how == "OneDevice":
            scope = tf.distribute.OneDeviceStrategy("CPU:0").scope()
        keras.utils.set_random_seed(0)
        made = {outside}
        with scope:
            m = model(made)
        if s: s.checkpoint(model=m, optimizer=m.optimizer)
        if "TEST_NUDGE" in os.environ:  # how far rounding and chance alone may go
            m(some(2)[0])  # which makes its weights
            keras.utils.set_random_seed(1)
            # Not all alike: a normalization would undo it.
            nudge = np.random.default_rng(1).choice([-1e-6, 1e-6], 10**6)
            for v in m.trainable_variables: v.assign(v * (1 + np.resize(nudge, v.shape)))
            apply = getattr(keras.optimizers.Optimizer, "apply", None)  # tf_keras has none
            def rounded(g, most):  # as sums in another order are, also where they are 0; some optimizers make it large
                if isinstance(g, tf.IndexedSlices):
                    return tf.IndexedSlices(rounded(g.values, most), g.indices, g.dense_shape)
                return g + tf.cast(1e-7 * most, g.dtype) * tf.random.stateless_uniform(
                    tf.shape(g), (1, 2), -1, 1, g.dtype)
            def noisy(self, grads, *more):
                all_ = [getattr(g, "values", g) for g in grads if g is not None]
                most = tf.reduce_max([tf.reduce_max(tf.abs(tf.cast(g, "float64"))) for g in all_])
                return apply(self, [None if g is None else rounded(g, most) for g in grads], *more)
            keras.optimizers.Optimizer.apply = noisy
        told = train(m)
        if "TEST_OUT" in os.environ:
            values = {{"/".join(map(str, place)): np.array(v) for place, v in tree.flatten_with_path(told)}}
            np.savez(os.environ["TEST_OUT"], *[np.array(v) for v in m.get_weights()], **values)
        else:
            print(told, [float(abs(np.array(v)).sum()) for v in m.get_weights()])
"""
