"""The model that a run leaves, in each of its forms: loaded by what reads it, and asked the same questions."""

import contextlib
import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer.cluster import DEADLINE, PATH, SOURCE, Job, ran

EPOCH = ("--epochs=1", "--batch-size=48")
DOCUMENT = SOURCE.parent / "docs" / "export.md"
TENSORFLOW_JS = Path(sys.prefix) / "tfjs" / "node_modules"


@pytest.fixture(scope="session")
def tfjs() -> Path:
    """Where `make trainer` has put the converter to TensorFlow.js, apart from the trainer's other packages."""
    return Path(sys.prefix) / "tfjs-converter"


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory, tfjs: Path) -> Job:
    """A job that exported all formats; finished."""
    folder = tmp_path_factory.mktemp("exported")
    arguments = [*EPOCH, "--export-formats=SavedModel,TFLite,TensorFlowJS"]
    return ran(folder, arguments=arguments, environ={"PYTHONPATH": f"{PATH}:{tfjs}"})


def version(job: Job) -> Path:
    return job.folder / "export" / "1"


def validation() -> Any:
    """The digits that were not trained on: inputs [359, 8, 8, 1], labels [359]."""
    from dtj_trainer.datasets import digits

    return digits().validation


def signature(path: Path) -> Any:
    """The SavedModel's, kept alive with its model."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))
    found = loaded.signatures["serving_default"]
    found.model = loaded
    return found


def test_result_and_last_words_show_where_it_is_how_large_and_which_one(exported: Job) -> None:
    path = version(exported)
    description = exported.result["export"]
    assert description["path"] == str(path)
    assert description["formats"] == ["SavedModel", "TFLite", "TensorFlowJS"]
    assert description["size"] == sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    by_hand = "find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
    digest = subprocess.run(["bash", "-c", by_hand], cwd=path, capture_output=True, text=True, check=True).stdout
    assert description["digest"] == f"sha256:{digest.split()[0]}"
    words = json.loads(exported["worker-0"].last_words)
    assert words["export"] == description
    assert (words["progress"]["phase"], words["progress"]["percent"]) == ("Done", 100)
    assert f"exported: {path}  SavedModel, TFLite, TensorFlowJS  1.9M bytes  sha256:" in exported["worker-0"].log
    assert [name for name in os.listdir(path.parent) if name != "1"] == [], "and no draft is left"


def test_the_saved_model_is_laid_out_as_tensorflow_serving_wants_it(exported: Job) -> None:
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString((version(exported) / "saved_model.pb").read_bytes())
    (graph,) = saved.meta_graphs
    assert list(graph.meta_info_def.tags) == ["serve"]
    served = graph.signature_def["serving_default"]
    assert served.method_name == "tensorflow/serving/predict"
    assert list(served.inputs) == ["inputs"]
    assert sorted(served.outputs) == ["class", "probabilities"]
    assert [dimension.size for dimension in served.inputs["inputs"].tensor_shape.dim] == [-1, 8, 8, 1]


def test_it_answers_what_the_rest_api_of_tensorflow_serving_is_asked(exported: Job) -> None:
    from trainer import rest

    data, serve = validation(), signature(version(exported))
    images = data.inputs[:5].tolist()
    rows = rest.predict(serve, {"instances": images})["predictions"]
    assert [row.keys() for row in rows] == 5 * [{"class", "probabilities"}]
    assert rows == rest.predict(serve, {"instances": [{"inputs": image} for image in images]})["predictions"]
    columns = rest.predict(serve, {"inputs": images})["outputs"]
    assert columns == rest.predict(serve, {"inputs": {"inputs": images}})["outputs"]
    assert columns["class"] == [row["class"] for row in rows]
    assert columns["probabilities"] == [row["probabilities"] for row in rows]
    whole = [[[[int(16 * pixel[0])] for pixel in line] for line in image] for image in images]
    assert len(rest.predict(serve, {"instances": whole})["predictions"]) == 5, "JSON may write numbers without a point"
    with pytest.raises(ValueError, match=r"inputs must have shape \(None, 8, 8, 1\)"):
        rest.predict(serve, {"instances": [[1.0, 2.0]]})
    with pytest.raises(ValueError, match="the signature takes"):
        rest.predict(serve, {"inputs": {"image": images}})


def test_the_tflite_model_answers_the_same(exported: Job) -> None:
    import numpy as np
    import tensorflow as tf

    data, serve = validation(), signature(version(exported))
    lite = tf.lite.Interpreter(str(version(exported) / "model.tflite")).get_signature_runner("serving_default")
    answers, wanted = lite(inputs=data.inputs), serve(inputs=tf.constant(data.inputs))
    assert answers.keys() == wanted.keys()
    np.testing.assert_allclose(answers["probabilities"], wanted["probabilities"], atol=1e-5)
    assert float((answers["class"] == data.labels).mean()) == pytest.approx(exported.result["accuracy"])
    assert len(lite(inputs=data.inputs[:1])["class"]) == 1, "of any batch size"


def test_tensorflow_js_itself_loads_its_model_and_answers_the_same(exported: Job) -> None:
    import numpy as np
    import tensorflow as tf

    node = shutil.which("node")
    if not node or not TENSORFLOW_JS.is_dir():
        pytest.skip("no TensorFlow.js: `make test-trainer-all` installs it where there are node and npm")
    images = validation().inputs[:20]
    script = [node, str(Path(__file__).parent / "tfjs" / "answers.js"), str(version(exported) / "tfjs")]
    environ = {**os.environ, "NODE_PATH": str(TENSORFLOW_JS)}
    arguments = [*script, json.dumps(images.tolist())]
    printed = subprocess.run(arguments, env=environ, capture_output=True, text=True, timeout=DEADLINE)
    answers = json.loads(printed.stdout.splitlines()[-1])
    wanted = signature(version(exported))(inputs=tf.constant(images))
    np.testing.assert_allclose(answers["probabilities"], wanted["probabilities"], atol=1e-5)
    assert answers["class"] == wanted["class"].numpy().tolist()


LSTM = """
import keras
from keras import layers

def build():
    return keras.Sequential([layers.Input((8, 8, 1)), layers.Reshape((8, 8)), layers.LSTM(16), layers.Dense(10)])

def steep(inputs):
    return keras.ops.arctanh(inputs / 2)

def odd():
    return keras.Sequential([*build().layers[:-1], layers.Activation(steep), layers.Dense(10)])
"""
ROWS = ("--model=rows:build", "--dataset=digits", "--loss=sparse_categorical_crossentropy")


def test_a_model_with_a_loop_is_a_tflite_model_that_takes_one_example_at_a_time_and_that_is_reported(
    folder: Path,
) -> None:
    import numpy as np
    import tensorflow as tf

    arguments, environ = [*EPOCH, *ROWS, "--export-formats=TFLite"], {"PYTHONPATH": f"{folder}:{PATH}"}
    job = ran(folder, arguments=arguments, files={"rows.py": LSTM}, environ=environ)
    assert "\nTFLite: takes one example at a time, float32 [1, 8, 8, 1]\n" in job["worker-0"].log
    inputs = validation().inputs[:20]
    lite = tf.lite.Interpreter(str(version(job) / "model.tflite")).get_signature_runner("serving_default")
    answers = np.concatenate([lite(inputs=one[np.newaxis])["outputs"] for one in inputs])
    np.testing.assert_allclose(answers, signature(version(job))(inputs=tf.constant(inputs))["outputs"], atol=1e-5)


def test_a_model_that_cannot_be_converted_is_one_line_and_its_saved_model_and_result_are_safe(
    folder: Path, tfjs: Path
) -> None:
    arguments = [*EPOCH, *ROWS, "--model=rows:odd", "--export-formats=TFLite,TensorFlowJS"]
    environ = {"PYTHONPATH": f"{folder}:{PATH}:{tfjs}"}
    job = ran(folder, code=1, arguments=arguments, files={"rows.py": LSTM}, environ=environ)
    worker, path = job["worker-0"], version(job)
    assert worker.last_words == (
        "export as TFLite: the model has operations that TFLite does not have (Atanh); the SavedModel is "
        f"safe in {path}; leave TFLite out of the formats (--export-formats, export.formats of a job)"
    )
    assert worker.log.rstrip().endswith(f"dtj_trainer: {worker.last_words}"), "and it is the last line"
    assert job.result["export"]["formats"] == ["SavedModel", "TensorFlowJS"], "what can be converted is"
    assert job.result["export"]["path"] == str(path)
    assert not (path / "model.tflite").exists()
    graph = json.loads((path / "tfjs" / "model.json").read_text())["modelTopology"]
    assert not {node["op"] for node in graph["node"]} & {"Enter", "Exit"}, "loops that TensorFlow.js cannot run"
    data = validation()
    answers = signature(path)(inputs=data.inputs)["outputs"].numpy()
    assert float((answers.argmax(axis=1) == data.labels).mean()) == pytest.approx(job.result["accuracy"])


def test_the_leader_of_two_workers_converts_while_the_other_waits(folder: Path) -> None:
    arguments = [*EPOCH, "--export-formats=TFLite"]
    job = ran(folder, strategy="MultiWorkerMirrored", arguments=arguments)
    assert job.result["export"]["formats"] == ["SavedModel", "TFLite"]
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", job.result["export"]["digest"])
    assert (version(job) / "model.tflite").exists()
    assert "export" not in json.loads(job["worker-1"].last_words)


@pytest.mark.parametrize(
    ("task", "dataset"),
    [
        ("image-classification", "digits"),
        ("text-classification", "reviews"),
        ("tabular-regression", "diabetes"),
        ("tabular-classification", "breast-cancer"),
    ],
)
def test_each_task_that_ships_answers_the_rest_api_and_is_a_tflite_model(
    tmp_path: Path, task: str, dataset: str
) -> None:
    import keras
    import numpy as np
    import tensorflow as tf

    from dtj_trainer.data.full_batches import Arrays
    from dtj_trainer.datasets import LOAD
    from dtj_trainer.export import tflite
    from dtj_trainer.export.saved_model import save
    from dtj_trainer.tasks.shipped import FIT
    from trainer import rest

    raw = Arrays(LOAD[dataset]())
    fitted = FIT[task](raw, keras)
    model, data = fitted.build(), fitted.data
    path = save(model, fitted.serving, data.input_spec, tmp_path, job="any", name="--model")
    serve = signature(path)
    sent, _ = next(iter(raw.validation(batch=3)))
    prepared, _ = next(iter(data.validation(batch=3)))
    wanted = fitted.serving.answer(model(prepared, training=False))

    instances = [item.decode() for item in sent.numpy()] if sent.dtype == tf.string else sent.numpy().tolist()
    columns = rest.predict(serve, {"inputs": instances})["outputs"]
    for name, value in wanted.items():
        answered = columns[name] if len(wanted) > 1 else columns
        np.testing.assert_allclose(answered, value, rtol=1e-5, atol=1e-5)
    rows = rest.predict(serve, {"instances": instances})["predictions"]
    assert len(rows) == 3
    with pytest.raises(ValueError, match="inputs must"):
        rest.predict(serve, {"instances": [1, 2, 3] if sent.dtype == tf.string else ["a", "b", "c"]})

    note = tflite.convert(path, tmp_path / "model.tflite")
    lite = tf.lite.Interpreter(str(tmp_path / "model.tflite")).get_signature_runner("serving_default")
    if sent.dtype == tf.string:
        assert note == (
            "takes one example at a time, int32 [1, 40] of numbers of words, not text: see "
            "assets.extra/vocabulary.txt and docs/export.md"
        )
        rows = [numbers_of(item.decode(), path) for item in sent.numpy()]
        answers = [lite(inputs=np.array([row], np.int32)) for row in rows]
        answered = {name: np.concatenate([one[name] for one in answers]) for name in wanted}
    else:
        assert note is None
        answered = lite(inputs=sent.numpy())
    assert answered.keys() == wanted.keys()
    for name, value in answered.items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-4, atol=1e-5)


def numbers_of(text: str, model: Path) -> list[int]:
    """The steps of a client in docs/export.md, run with the lines of that page."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = {"text": text}
    with contextlib.chdir(model):
        exec(block, found)
    (row,) = found["inputs"]
    return list(row)


def test_whole_numbers_that_a_model_is_trained_on_are_served_as_such(tmp_path: Path) -> None:
    import keras
    import tensorflow as tf

    from dtj_trainer.export.saved_model import Serving, save

    serving, given = Serving(answer=lambda outputs: {"score": outputs}), tf.TensorSpec((None, 4), tf.int64)
    layers = keras.layers
    model = keras.Sequential([layers.Input((4,), dtype="int64"), layers.Embedding(9, 2), layers.Flatten()])
    spec = signature(save(model, serving, given, tmp_path, job="tokens", name="--model")).structured_input_signature[1][
        "inputs"
    ]
    assert (spec.dtype, spec.shape.as_list()) == (tf.int64, [None, 4])


def test_ragged_inputs_are_served_one_example_at_a_time_so_that_no_padding_counts(tmp_path: Path) -> None:
    import keras
    import tensorflow as tf

    from dtj_trainer.export.saved_model import Serving, save

    inputs = keras.Input((None,), dtype="float32", ragged=True)
    means = keras.layers.Lambda(lambda rows: tf.reduce_mean(rows, axis=1, keepdims=True), output_shape=(1,))
    model = keras.Model(inputs, means(inputs))
    spec = tf.RaggedTensorSpec((None, None), tf.float32)
    path = save(
        model, Serving(answer=lambda outputs: {"outputs": outputs}), spec, tmp_path, job="served", name="--model"
    )
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    assert served(inputs=tf.constant([[1.0, 2.0, 6.0]]))["outputs"].numpy().tolist() == [[3.0]]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[2,3\] is not compatible with expected shape \[1,\?\]"):
        served(inputs=tf.constant([[1.0, 2.0, 6.0], [4.0, 0.0, 0.0]]))


@pytest.mark.parametrize("names", [("wide", "narrow"), ("inputs_0", "inputs_1")], ids=str)
def test_a_tflite_model_takes_each_of_several_inputs_by_its_name(tmp_path: Path, names: tuple[str, str]) -> None:
    import keras
    import numpy as np
    import tensorflow as tf

    from dtj_trainer.export import tflite
    from dtj_trainer.export.saved_model import Serving, save

    wide, narrow = keras.Input((3,), name=names[0]), keras.Input((2,), name=names[1])
    outputs = keras.layers.Dense(1)(keras.layers.Concatenate()([wide, narrow]))
    specs = (tf.TensorSpec((None, 3), tf.float32), tf.TensorSpec((None, 2), tf.float32))
    if names[0] == "wide":
        model, spec = (
            keras.Model(dict(zip(names, (wide, narrow), strict=True)), outputs),
            dict(zip(names, specs, strict=True)),
        )
    else:
        model, spec = keras.Model([wide, narrow], outputs), specs
    path = save(
        model, Serving(answer=lambda outputs: {"outputs": outputs}), spec, tmp_path, job="several", name="--model"
    )
    assert tflite.convert(path, tmp_path / "model.tflite") is None
    given = dict(zip(names, (np.ones((4, 3), np.float32), np.full((4, 2), 2, np.float32)), strict=True))
    lite = tf.lite.Interpreter(str(tmp_path / "model.tflite")).get_signature_runner("serving_default")
    wanted = tf.saved_model.load(str(path)).signatures["serving_default"](**given)["outputs"]
    np.testing.assert_allclose(lite(**given)["outputs"], wanted, rtol=1e-5)


def test_inputs_that_no_argument_can_be_called_are_served_by_names_that_can(tmp_path: Path) -> None:
    import tensorflow as tf

    from dtj_trainer.export.saved_model import Serving, save

    names = {
        "hours-per-week": "hours_per_week_2", "hours_per_week": "hours_per_week", "hours per week": "hours_per_week_1",
        "1st": "arg_1st", "class": "arg_class", "self": "arg_self", "_id": "arg__id", "größe": "gr__e", "Age": "Age",
        "age": "age_1",
    }  # fmt: skip
    spec = dict.fromkeys(names, tf.TensorSpec((None, 1), tf.float32)) | {
        "pair": (tf.TensorSpec((None, 1), tf.float32), tf.TensorSpec((None, 1), tf.float32))
    }
    names |= {"pair": "pair_0"}

    class Named(tf.Module):
        def __call__(self, inputs: dict[str, Any], training: bool = False) -> dict[str, Any]:
            first = {name: inputs["pair"][0] if name == "pair" else inputs[name] for name in names}
            return {f"of {number}": first[name] for number, name in enumerate(names)}

    path = save(Named(), Serving(answer=lambda outputs: outputs), spec, tmp_path, job="named", name="--model")
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    given = {name: tf.constant([[float(number)]]) for number, name in enumerate([*names.values(), "pair_1"])}
    answer = served(**given)
    assert [int(answer[f"of {number}"][0, 0]) for number in range(len(names))] == list(range(len(names)))


def test_no_output_of_a_model_is_lost_that_keras_calls_like_another() -> None:
    import keras
    import tensorflow as tf

    from dtj_trainer.training.model import named_outputs

    inputs = keras.Input((3, 2))
    states = keras.Model(inputs, keras.layers.LSTM(4, return_state=True)(inputs))
    outputs = states(tf.ones((1, 3, 2)))
    assert len({*states.output_names}) == 1
    assert list(named_outputs(outputs, states.output_names)) == ["output_0", "output_1", "output_2"]
    assert list(named_outputs(outputs, ["a", "b", "c"])) == ["a", "b", "c"]
    nested = {"a": {"b": outputs[0], "c": outputs[1]}, "d": outputs[2]}
    assert all(map(tf.is_tensor, named_outputs(nested, []).values()))


def test_a_tflite_model_of_several_inputs_that_takes_one_example_names_each(tmp_path: Path) -> None:
    import keras
    import tensorflow as tf

    from dtj_trainer.export import tflite
    from dtj_trainer.export.saved_model import Serving, save

    layers = keras.layers
    rows, number = keras.Input((5, 2), name="rows"), keras.Input((1,), name="number")
    outputs = layers.Dense(1)(layers.Concatenate()([layers.LSTM(3)(rows), number]))
    model = keras.Model({"rows": rows, "number": number}, outputs)
    spec = {"rows": tf.TensorSpec((None, 5, 2), tf.float32), "number": tf.TensorSpec((None, 1), tf.float32)}
    path = save(model, Serving(answer=lambda outputs: {"outputs": outputs}), spec, tmp_path, job="rows", name="--model")
    note = tflite.convert(path, tmp_path / "model.tflite")
    assert note == "takes one example at a time, number float32 [1, 1], rows float32 [1, 5, 2]"


HELD = """
import keras
import tensorflow as tf

TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.range(17), tf.range(17)), -1)
INNER = keras.Sequential([keras.Input((64,)), keras.layers.Dense(4)])

def made(function):
    first = [keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Lambda(function)]
    return keras.Sequential([*first, keras.layers.Dense(10, "softmax")])

def table():
    return made(lambda inputs: tf.cast(TABLE.lookup(tf.cast(inputs, tf.int32)), tf.float32))

def closure():
    return made(lambda inputs: INNER(inputs))
"""


@pytest.mark.parametrize(
    ("build", "what"), [("table", "the StaticHashTable"), ("closure", "the variable sequential/dense/kernel")]
)
def test_a_model_that_a_saved_model_cannot_hold_is_one_line_and_the_result_is_safe(
    folder: Path, build: str, what: str
) -> None:
    arguments, environ = [*EPOCH, *ROWS, f"--model=held:{build}"], {"PYTHONPATH": f"{folder}:{PATH}"}
    job = ran(folder, code=2, arguments=arguments, files={"held.py": HELD}, environ=environ)
    worker = job["worker-0"]
    assert worker.last_words == (
        f"--model=held:{build}: a layer uses {what}, which is no attribute of it, and a "
        "SavedModel leaves such out; set it as an attribute of the layer (self.table = table), or give no --export-dir"
    )
    assert "Traceback" not in worker.log
    assert job.result["accuracy"] >= 0
    assert "export" not in job.result
    assert not [*(folder / "export").iterdir()]


@pytest.mark.parametrize("place", ["saved_model.save", "rename"])
def test_a_model_that_finds_no_room_is_one_line_and_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    import keras
    import tensorflow as tf

    from dtj_trainer.errors import NotSaved
    from dtj_trainer.export.saved_model import Serving, save

    def full(*_: object, **__: object) -> None:
        if place == "rename":
            raise OSError(errno.ENOSPC, "No space left on device")
        raise tf.errors.ResourceExhaustedError(None, None, "export/variables; No space left on device")

    monkeypatch.setattr(*((Path, "rename") if place == "rename" else (tf.saved_model, "save")), full)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    serving = Serving(answer=lambda outputs: {"outputs": outputs})
    with pytest.raises(
        NotSaved, match=r"^export directory \S+: the model cannot be written \(No space left on device\); "
    ):
        save(model, serving, tf.TensorSpec((None, 2), tf.float32), tmp_path, job="served", name="--model")
    assert not [*tmp_path.iterdir()]


def test_a_result_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    from dtj_trainer.errors import NotSaved
    from dtj_trainer.process.output_directories import RESULT, write_result

    (tmp_path / RESULT).mkdir()
    with pytest.raises(
        NotSaved, match=r"^log directory \S+: result.json cannot be written \(Is a directory\); [^\n]*$"
    ):
        write_result(tmp_path, {"steps": 3})
    assert [path.name for path in tmp_path.iterdir()] == [RESULT]


def test_a_model_that_answers_no_number_is_converted_where_its_tflite_model_answers_none_either(tmp_path: Path) -> None:
    import keras
    import tensorflow as tf

    from dtj_trainer.export import tflite
    from dtj_trainer.export.saved_model import Serving, save

    serving, given = Serving(answer=lambda outputs: {"score": outputs}), tf.TensorSpec((None, 2), tf.float32)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Lambda(lambda inputs: tf.math.log(inputs - 0.5))])
    path = save(model, serving, given, tmp_path, job="numbers", name="--model")
    assert tflite.convert(path, tmp_path / "model.tflite") is None


def test_a_converted_model_that_answers_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import keras
    import tensorflow as tf

    from dtj_trainer.export import tflite
    from dtj_trainer.export.saved_model import Serving, save

    serving, given = Serving(answer=lambda outputs: {"score": outputs}), tf.TensorSpec((None, 2), tf.float32)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    path = save(model, serving, given, tmp_path, job="numbers", name="--model")
    whole = tf.lite.TFLiteConverter.from_saved_model  # which loses the weights, as the module under test says
    monkeypatch.setattr(
        tf.lite.TFLiteConverter,
        "from_concrete_functions",
        lambda *_: whole(str(path), signature_keys=["serving_default"]),
    )
    with pytest.raises(ValueError, match="gives other results than the SavedModel"):
        tflite.convert(path, tmp_path / "model.tflite")
    assert not (tmp_path / "model.tflite").exists()
