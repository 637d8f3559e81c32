"""What layers of Keras 3 compute for a batch and for its parts: which compare examples, and how added losses divide."""

import random
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from dtj_trainer.compat import keras3
from dtj_trainer.errors import Undivided
from dtj_trainer.training.drawing_alike import drawing_alike
from dtj_trainer.training.layers import added_times, check_shared
from dtj_trainer.training.layers_by_parts import look
from dtj_trainer.training.loss_division import Parts
from log_lines import log_lines
from trainer.adversaries.parts import PARTS

L = keras.layers
OWN: dict[str, Any] = {"keras": keras, "tf": tf, "L": L}
for _name in (
    "AddMean",
    "AddSum",
    "AddSpread",
    "AddBalance",
    "Centre",
    "Scaled",
    "Running",
    "Counted",
    "Attention",
    "Residual",
):
    exec(PARTS[_name], OWN)


def normal(*shape: int) -> Any:
    return np.random.default_rng(2).normal(size=shape).astype("float32")


def tokens(*shape: int) -> Any:
    return np.random.default_rng(2).integers(1, 20, shape).astype("int32")


def sequential(*layers: Any, shape: tuple[int, ...] = (6,)) -> Any:
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input(shape), *layers, L.Dense(3)])


class Noisy(keras.Layer):  # type: ignore[misc]
    def call(self, h: Any) -> Any:
        return h + tf.random.normal(tf.shape(h)) * tf.random.uniform([h.shape[-1]]) + self.generator.normal(tf.shape(h))

    def build(self, _: Any) -> None:
        self.generator = tf.random.Generator.from_seed(1)


class Positions(keras.Layer):  # type: ignore[misc]
    def build(self, shape: Any) -> None:
        self.inner = L.Embedding(shape[1], shape[2])

    def call(self, h: Any) -> Any:
        return h + self.inner(tf.range(h.shape[1]))


class Experts(keras.Layer):  # type: ignore[misc]
    """Each token goes to one of two."""

    def build(self, shape: Any) -> None:
        self.gate, self.one, self.two = L.Dense(2), L.Dense(shape[-1]), L.Dense(shape[-1])

    def call(self, h: Any) -> Any:
        flat = tf.reshape(h, [-1, h.shape[-1]])
        kind = tf.argmax(self.gate(flat), -1)
        places = [tf.where(kind == number)[:, 0] for number in (0, 1)]
        chosen = [expert(tf.gather(flat, at)) for expert, at in zip((self.one, self.two), places, strict=True)]
        shape = tf.shape(flat, tf.int64)
        return tf.reshape(tf.scatter_nd(tf.concat(places, 0)[:, None], tf.concat(chosen, 0), shape), tf.shape(h))


class Largest(keras.Layer):  # type: ignore[misc]
    def call(self, h: Any) -> Any:
        return tf.reduce_max(h)


class Sized(keras.Model):  # type: ignore[misc]
    """With a layer that gives one number, which is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.largest, self.out = Largest(), L.Dense(3)

    def call(self, h: Any) -> Any:
        self.largest(h)
        return self.out(h)


class Between(keras.Model):  # type: ignore[misc]
    """Compares examples in the code between its layers."""

    def __init__(self) -> None:
        super().__init__(name="between")
        self.hidden, self.out = L.Dense(4), L.Dense(3)

    def call(self, h: Any) -> Any:
        h = self.hidden(h)
        return self.out(h - tf.reduce_mean(h, axis=0))


class Pairs(keras.Layer):  # type: ignore[misc]
    def call(self, h: Any) -> Any:
        return tf.matmul(h, h, transpose_b=True)


class Total(keras.Layer):  # type: ignore[misc]
    def call(self, h: Any) -> Any:
        return tf.reduce_mean(h)


def whole() -> Any:
    inputs = keras.Input((6,))
    return keras.Model(inputs, L.Multiply()([inputs, keras.ops.reshape(Total()(inputs), (1, 1))]), name="whole")


class Normalized(keras.Layer):  # type: ignore[misc]
    """BatchNormalization written by hand."""

    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)

    def call(self, h: Any, training: bool = False) -> Any:
        mean, variance = tf.nn.moments(h, 0) if training else (self.mean, 1.0)
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * mean)
        return (h - mean) / tf.sqrt(variance + 1e-3)


class Aggregated(keras.Layer):  # type: ignore[misc]
    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False, aggregation="mean")

    def call(self, h: Any, training: bool = False) -> Any:
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(h, 0))
        return h - self.mean


def looked_up() -> Any:
    return keras.Sequential([L.StringLookup(vocabulary=["a", "b", "c"]), L.Embedding(5, 3), L.GlobalMaxPooling1D()])


def ragged() -> Any:
    inputs = keras.Input((None,), ragged=True, dtype="int32")
    return keras.Model(inputs, L.Lambda(lambda h: tf.reduce_mean(tf.cast(h, tf.float32), -1, keepdims=True))(inputs))


def several() -> Any:
    inputs = {"a": keras.Input((4,)), "b": keras.Input((3,))}
    return keras.Model(inputs, L.Dense(2)(L.Concatenate()([inputs["a"], inputs["b"]])))


IMAGES, SERIES = (6, 6, 2), (5, 4)
EACH_ALONE: dict[str, tuple[Callable[[], Any], Any]] = {
    "batch normalization": (lambda: sequential(L.BatchNormalization(), L.Dropout(0.5)), normal(12, 6)),
    "batch normalization of time steps": (
        lambda: sequential(L.TimeDistributed(L.BatchNormalization()), L.SpatialDropout1D(0.5), shape=SERIES),
        normal(12, *SERIES),
    ),
    "noise": (lambda: sequential(L.GaussianNoise(1.0), L.GaussianDropout(0.3), Noisy()), normal(12, 6)),
    "images": (
        lambda: sequential(
            L.RandomFlip(), L.RandomRotation(0.2), L.RandomZoom(0.2), L.RandomContrast(0.5),
            L.RandomTranslation(0.1, 0.1), L.RandomCrop(5, 5),
            L.Conv2D(4, 3, activation="relu"), L.SpatialDropout2D(0.3), L.Flatten(), shape=IMAGES,
        ),
        normal(12, *IMAGES),
    ),
    "mixed images": (lambda: sequential(L.MixUp(), L.Flatten(), shape=IMAGES), normal(12, *IMAGES)),
    "spectral": (lambda: sequential(L.SpectralNormalization(L.Dense(4))), normal(12, 6)),
    "recurrent": (
        lambda: sequential(
            L.Bidirectional(L.LSTM(3, return_sequences=True, dropout=0.2, recurrent_dropout=0.2)),
            L.GRU(3), shape=SERIES,
        ),
        normal(12, *SERIES),
    ),
    "attention": (
        lambda: sequential(
            Positions(), OWN["Attention"](), Experts(),
            L.GlobalAveragePooling1D(), shape=SERIES,
        ),
        normal(12, *SERIES),
    ),
    "masked tokens": (
        lambda: keras.Sequential([L.Embedding(20, 4, mask_zero=True), L.LSTM(3)]),
        tokens(12, 6) * (np.arange(6) < 2 + np.arange(12)[:, None] % 5).astype("int32"),
    ),
    "two examples of tokens": (lambda: keras.Sequential([L.Embedding(20, 4), L.Flatten()]), tokens(2, 6)),
    "one number": (Sized, normal(12, 6)),
    "a count, used twice": (lambda: sequential(OWN["Counted"](), OWN["Residual"]()), normal(12, 6)),
    "aggregated": (lambda: sequential(Aggregated()), normal(12, 6)),
    "words": (looked_up, tf.constant([[word, "a"] for word in "abcdbcadbcba"])),
    "hashed": (lambda: keras.Sequential([L.Hashing(7), L.Embedding(7, 2), L.Flatten()]), tokens(12, 2)),
    "several inputs": (several, {"a": normal(12, 4), "b": normal(12, 3)}),
    "ragged": (ragged, tf.RaggedTensor.from_row_lengths(tf.range(78), tf.range(1, 13))),
    "bfloat16": (lambda: sequential(*(L.Dense(64, "relu", dtype="mixed_bfloat16") for _ in range(5))), normal(12, 6)),
}  # fmt: skip


@pytest.mark.parametrize(("make", "inputs"), EACH_ALONE.values(), ids=EACH_ALONE)
def test_layers_that_take_each_example_alone_are_accepted(make: Callable[[], Any], inputs: Any) -> None:
    inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs, expand_composites=True)
    model = make()
    model(inputs)
    assert look(model, inputs).comparing is None


COMPARING: dict[str, tuple[Callable[[], Any], str]] = {
    "centre": (lambda: sequential(OWN["Centre"](name="middle")), "layer middle (Centre)"),
    "scaled": (lambda: sequential(L.Dense(4), OWN["Scaled"](name="scaled")), "layer scaled (Scaled)"),
    "pairs": (lambda: keras.Sequential([keras.Input((6,)), Pairs(name="pairs")]), "layer pairs (Pairs)"),
    "normalized": (lambda: sequential(Normalized(name="own")), "layer own (Normalized)"),
    "model": (Between, "model between (Between)"),
    "after noise": (
        lambda: sequential(L.Dropout(0.5), Noisy(), OWN["Centre"](name="middle")), "layer middle (Centre)"
    ),
    "in a layer": (lambda: sequential(keras.Sequential([OWN["Centre"](name="deep")])), "layer deep (Centre)"),
    "low precision": (
        lambda: sequential(L.Dense(64, dtype="mixed_bfloat16"), OWN["Centre"](name="middle")),
        "layer middle (Centre)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("examples", [12, 2])
@pytest.mark.parametrize(("make", "name"), COMPARING.values(), ids=COMPARING)
def test_a_layer_that_compares_examples_is_named(make: Callable[[], Any], name: str, examples: int) -> None:
    model, inputs = make(), tf.constant(normal(examples, 6))
    model(inputs)
    before = [variable.numpy() for variable in model.variables]
    assert look(model, inputs).comparing == name
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


@keras.saving.register_keras_serializable()
class Keeps(L.Layer):
    """Keeps noise."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seeds = keras.random.SeedGenerator(3)

    def build(self, shape: Any) -> None:
        self.level = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False, name="level")

    def call(self, h: Any) -> Any:
        self.level.assign(keras.random.normal(self.level.shape, seed=self.seeds))
        return h + self.level


OWN["Keeps"] = Keeps


def test_a_token_that_both_parts_have_hides_no_layer_that_compares_examples() -> None:
    tokens = np.stack([np.random.default_rng(seed).permutation(8) for seed in range(12)])
    model = keras.Sequential([keras.Input((8,), dtype="int32"), L.Embedding(8, 4), OWN["Scaled"](name="scaled")])
    assert look(model, tf.constant(tokens)).comparing == "layer scaled (Scaled)"


WITH_ALL: dict[str, tuple[Callable[[], Any], list[str], str | None]] = {
    "several, one in another": (
        lambda: sequential(OWN["Centre"](), keras.Sequential([L.Dense(4), OWN["Scaled"]()]), OWN["AddBalance"]()),
        ["Centre", "Scaled", "AddBalance"], None,
    ),
    "used twice": (lambda: sequential(*[OWN["Centre"]()] * 2), ["Centre"], None),
    "weights": (lambda: sequential(OWN["Running"](), Aggregated()), ["Running"], None),
    "a number for each pair": (
        lambda: keras.Sequential([keras.Input((6,)), OWN["Centre"](), Pairs()]), ["Centre", "Pairs"], None
    ),
    "one number for all": (whole, [], "whole"),
    "the model itself": (Between, [], "between"),
    "weights by chance": (lambda: sequential(Keeps(name="own")), [], "sequential/own/level"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "layers", "refused"), WITH_ALL.values(), ids=WITH_ALL)
def test_layers_that_need_the_examples_of_all_replicas_are_found_or_refused(
    make: Callable[[], Any], layers: list[str], refused: str | None
) -> None:
    model, inputs = make(), tf.constant(normal(12, 6))
    model(inputs)
    names = [] if refused is None else [f"{model.name}/own/level" if refused.endswith("level") else refused]
    seen = check_shared(model, inputs, what="fit", otherwise="train on one device", unchecked=names)
    assert sorted(type(layer).__name__ for layer in seen.of_all) == sorted(layers)
    if refused is not None:
        with pytest.raises(Undivided, match=names[0]):
            check_shared(model, inputs, what="fit", otherwise="train on one device", unchecked=[])


def test_a_weight_that_an_evaluation_sets_too_is_not_shared_where_each_replica_evaluates_alone() -> None:
    class Always(OWN["Running"]):  # type: ignore[misc, name-defined]
        def call(self, h: Any) -> Any:
            return super().call(h, training=True)

    model, inputs = sequential(Always(name="own")), tf.constant(normal(12, 6))
    options: dict[str, Any] = {"what": "--model", "otherwise": "use strategy OneDevice", "unchecked": []}
    assert [layer.name for layer in check_shared(model, inputs, **options).of_all] == ["own"]
    with pytest.raises(Undivided, match=r"/own/.* depends on the examples"):
        check_shared(model, inputs, evaluates_alone=True, **options)


ADDED: dict[str, tuple[Callable[[], Any], list[Parts]]] = {
    "mean": (lambda: OWN["AddMean"](), [Parts.MEAN]),
    "sum": (lambda: OWN["AddSum"](), [Parts.SUM]),
    "deviation": (lambda: OWN["AddSpread"](), [Parts.NONE]),
    "load balancing": (lambda: OWN["AddBalance"](), [Parts.NONE]),
    "activities and penalties": (
        # Keras divides the first by the number of examples.
        lambda: L.Dense(4, activity_regularizer="l2", kernel_regularizer="l1"), [Parts.MEAN, Parts.MEAN]
    ),
    "zero": (lambda: L.ActivityRegularization(0.0, 0.0), [Parts.MEAN]),
    "mean of noise": (lambda: keras.Sequential([Noisy(), OWN["AddMean"]()]), [Parts.MEAN]),
}  # fmt: skip


@pytest.mark.parametrize("examples", [12, 2])
@pytest.mark.parametrize(("make", "parts"), ADDED.values(), ids=ADDED)
def test_each_added_loss_is_a_mean_a_sum_or_neither(make: Callable[[], Any], parts: list[Parts], examples: int) -> None:
    model = sequential(make())
    assert [loss.parts for loss in look(model, tf.constant(normal(examples, 6))).added] == parts


def test_examples_that_are_alike_prove_nothing() -> None:
    model, alike = sequential(OWN["AddSpread"](), OWN["Centre"](name="middle")), tf.ones([12, 6])
    assert [loss.parts for loss in look(model, alike).added] == [Parts.NONE]
    assert look(model, alike).comparing == "layer middle (Centre)"


@pytest.mark.parametrize(
    ("layer", "line"),
    [
        ("AddBalance", r"neither the mean over the examples nor their sum \(layer own \(AddBalance\)\).*add the mean"),
        ("Centre", r"layer own \(Centre\) gives for an example what depends on the other examples"),
        ("Keeps", r"/own/level depends on the examples that the model is called with, or on chance"),
    ],
)
def test_the_line_names_the_layer_and_a_remedy(layer: str, line: str) -> None:
    model, inputs = sequential(OWN[layer](name="own")), tf.constant(normal(12, 6))
    options: dict[str, Any] = {"what": "fit", "otherwise": "train on one device", "exchanging": False}
    with pytest.raises(Undivided, match=line) as refused:
        check_shared(model, inputs, unchecked=["another"], **options)
    name, told = refused.value.name, str(refused.value).partition(", or accept")[0]
    with log_lines() as printed:
        check_shared(model, inputs, unchecked=["another", name], **options)
    assert printed == [f"warning: accepted by --unchecked={name}: {told}"]


def test_generators_stand_afterwards_where_they_stood() -> None:
    def drawn() -> list[float]:
        own = tf.random.Generator.from_seed(4)
        keras.utils.set_random_seed(3)
        if look:
            with keras.StatelessScope(), drawing_alike(lambda: None):
                random.random()
                np.random.normal()
                tf.random.normal([2])
                keras.random.normal([2])
                own.normal([2])
        return [random.random(), np.random.normal(), *(float(d([])) for d in (tf.random.normal, own.normal))]

    look = False
    before = drawn()
    look = True
    assert drawn() == before


def test_another_thread_draws_as_ever() -> None:
    drawn: list[Any] = []
    with drawing_alike(lambda: None):
        thread = threading.Thread(target=lambda: drawn.append(tf.random.normal([4, 3]).numpy()))
        thread.start()
        thread.join()
        alike = tf.random.normal([4, 3]).numpy()
    assert not np.array_equal(drawn[0][0], drawn[0][1])
    assert np.array_equal(alike[0], alike[3])


def test_what_cannot_be_drawn_alike_is_noticed() -> None:
    noticed: list[None] = []
    with drawing_alike(lambda: noticed.append(None)):
        keras.random.normal([3])
        assert not noticed
        keras.random.gamma([3], 1.0)
    assert noticed


def test_a_function_that_a_look_has_called_draws_anew_afterwards() -> None:
    class Drawing(keras.Layer):  # type: ignore[misc]
        @tf.function  # type: ignore[untyped-decorator]
        def call(self, h: Any) -> Any:
            return h + tf.random.normal(tf.shape(h))

    model, inputs = sequential(Drawing()), tf.constant(normal(12, 6))
    assert look(model, inputs).comparing is None
    assert not np.array_equal(model(inputs), model(inputs))


def test_losses_are_changed_in_one_thread_and_by_the_innermost() -> None:
    model = sequential(L.Dense(2, kernel_regularizer="l2"))
    (plain,) = [float(loss) for loss in model.losses]
    given: dict[int, float] = {}
    both = threading.Barrier(2)

    def replica(factor: int) -> None:
        with keras3.changing_losses(lambda losses: [factor * loss for loss in losses]):
            both.wait()
            given[factor] = float(model.losses[0])
            both.wait()

    threads = [threading.Thread(target=replica, args=(factor,)) for factor in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert given == {factor: pytest.approx(factor * plain) for factor in (2, 3)}
    with keras3.changing_losses(lambda losses: [5 * loss for loss in losses]):
        with keras3.changing_losses(lambda _: model.losses * 2):
            assert [float(loss) for loss in model.losses] == [plain, plain]
        assert float(model.losses[0]) == pytest.approx(5 * plain)
    assert [float(loss) for loss in model.losses] == [plain]


def test_an_added_loss_counts_as_what_it_is_also_where_a_part_of_the_model_is_asked_for_its_own() -> None:
    inner = sequential(OWN["AddSum"]())
    model = sequential(OWN["AddMean"](), inner, L.Dense(1, kernel_regularizer="l2"))
    parts = [loss.parts for loss in look(model, tf.constant(normal(8, 6))).added]
    assert parts == [Parts.MEAN, Parts.SUM, Parts.MEAN]
    model(normal(8, 6), training=True)
    for one, factors in ((model, [0.5, 2.0, 0.5]), (inner, [2.0])):
        found = added_times(model, one.losses, parts, mean=0.5, sum_=2.0)
        assert np.allclose(found, np.multiply(one.losses, factors))
