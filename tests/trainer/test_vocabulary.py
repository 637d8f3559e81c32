"""Texts become the numbers that Keras' TextVectorization gives, without a table, and always the same ones."""

import numpy as np

TEXTS = (
    "The picture is great, and the sound is GREAT too!",
    "don't buy it; it's bad...",
    "",
    "bad bad bad",
    "ümläute stay — as they are",
)


def test_words_are_cut_and_numbered_as_keras_does_it() -> None:
    import keras
    import tensorflow as tf

    from dtj_trainer.tasks.vocabulary import Vocabulary, most_frequent

    words = most_frequent([np.array(TEXTS, object)], most=100)
    theirs = keras.layers.TextVectorization(output_sequence_length=12, vocabulary=[word.decode() for word in words])(
        tf.constant(TEXTS)
    )
    ours = Vocabulary(words).encode(tf.constant(TEXTS), length=12).numpy()
    # Ours are padded in front, theirs at the end.
    for mine, his in zip(ours, theirs.numpy(), strict=True):
        assert [n for n in mine if n] == [n for n in his if n]
        assert not mine[: (mine == 0).sum()].any()


def test_the_most_frequent_words_come_first_and_others_are_unknown() -> None:
    import tensorflow as tf

    from dtj_trainer.tasks.vocabulary import UNKNOWN, Vocabulary, most_frequent

    words = most_frequent([np.array(["b a", "b c c"], object)], most=2)
    assert words == [b"b", b"c"]
    vocabulary = Vocabulary(words)
    assert len(vocabulary) == 4
    assert vocabulary.encode(tf.constant(["c x b"]), length=4).numpy().tolist() == [[0, 3, UNKNOWN, 2]]


def test_no_word_of_a_long_text_is_read_beyond_the_length() -> None:
    import tensorflow as tf

    from dtj_trainer.tasks.vocabulary import Vocabulary

    assert Vocabulary([b"a", b"b"]).encode(tf.constant(["a b a b"]), length=3).numpy().tolist() == [[2, 3, 2]]


def test_the_vocabulary_is_of_the_training_examples_alone() -> None:
    import keras

    from dtj_trainer.data.full_batches import Arrays
    from dtj_trainer.datasets import Dataset, Split
    from dtj_trainer.tasks.shipped import text_classification

    training = Split(inputs=np.array([b"good one", b"bad one"], object), labels=np.array([1, 0]))
    validation = Split(inputs=np.array([b"excellent"], object), labels=np.array([1]))
    data = Arrays(Dataset(name="texts", training=training, validation=validation, classes=("bad", "good")))
    task = text_classification(data, keras)
    ((numbers, labels),) = task.data.validation(batch=8)
    assert set(numbers.numpy().ravel()) == {0, 1}
    assert labels.numpy().tolist() == [1]
    assert sorted(task.serving.encode(np.array(["good one"])).numpy()[0][-2:]) == [2, 4]


def test_moments_of_a_source_are_those_of_its_training_examples() -> None:
    from dtj_trainer.data.full_batches import Arrays
    from dtj_trainer.datasets import diabetes
    from dtj_trainer.tasks.shipped import Moments, training_examples

    data = diabetes()
    columns = Moments()
    for inputs, _ in training_examples(Arrays(data)):
        columns.add(inputs)
    inputs = data.training.inputs.astype(np.float64)
    np.testing.assert_allclose(columns.mean, inputs.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(columns.deviation, inputs.std(axis=0), rtol=1e-9)
