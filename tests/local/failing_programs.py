"""Programs that fail, each in a way that users meet: run by the trainer's Python, one JSON line with all last words.

Run as a script. A new way to fail is a function whose name is that of the hint, with - as _.
"""

import json
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from unittest import mock

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import numpy as np
import tensorflow as tf

TMP = Path(tempfile.mkdtemp())

_CPU = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(_CPU, [tf.config.LogicalDeviceConfiguration()] * 2)


def device_out_of_memory() -> None:
    tf.ones([1 << 46])


def disk_full() -> None:
    with open("/dev/full", "w") as full:
        full.write("x" * 100_000)


def too_many_files() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    opened = []
    try:
        while True:
            opened.append(open("/dev/null"))  # noqa: SIM115
    finally:
        for file in opened:
            file.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def name_resolution() -> None:
    socket.getaddrinfo("worker-9.digits.default.svc", 2222)


def port_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        address = f"localhost:{taken.getsockname()[1]}"
        tf.distribute.Server({"worker": [address]}, job_name="worker", task_index=0)


def strategy_too_late() -> None:
    cluster = {"worker": ["localhost:31111", "localhost:31112"]}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    try:
        tf.distribute.MultiWorkerMirroredStrategy()
    finally:
        del os.environ["TF_CONFIG"]


def tpu_without_name() -> None:
    tf.distribute.cluster_resolver.TPUClusterResolver("")


def no_tpu() -> None:
    tf.tpu.experimental.initialize_tpu_system(tf.distribute.cluster_resolver.TPUClusterResolver("local"))


def file_sharding() -> None:
    from tensorflow.python.data.experimental.ops import distribute

    (TMP / "one").touch()
    data = tf.data.Dataset.from_tensor_slices([str(TMP / "one")]).interleave(tf.data.TFRecordDataset)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
    next(iter(distribute._AutoShardDataset(data.with_options(options), 2, 0)))


def url_scheme() -> None:
    tf.io.gfile.GFile("s3://bucket/data.csv").read()


def file_in_use() -> None:
    import h5py

    with h5py.File(TMP / "model.h5", "w"):
        h5py.File(TMP / "model.h5", "w")


def no_record_file() -> None:
    (TMP / "text").write_text("not a record at all, but long enough to be read")
    next(iter(tf.data.TFRecordDataset(str(TMP / "text"))))


def no_record_file__compressed() -> None:
    with tf.io.TFRecordWriter(str(TMP / "packed"), "GZIP") as file:
        file.write(b"a record")
    next(iter(tf.data.TFRecordDataset(str(TMP / "packed"))))


def end_of_data() -> None:
    data = iter(tf.data.Dataset.range(1))
    next(data)
    data.get_next()


def ragged() -> None:
    tf.constant([[1, 2], [3]])


def _checkpoint(**objects: tf.Variable) -> str:
    path: str = tf.train.Checkpoint(**objects).save(str(TMP / "checkpoint"))
    return path


def other_shape_in_checkpoint() -> None:
    path = _checkpoint(v=tf.Variable([1.0, 2.0]))
    tf.train.Checkpoint(v=tf.Variable([1.0, 2.0, 3.0])).restore(path).assert_consumed()


def other_objects_in_checkpoint() -> None:
    path = _checkpoint(v=tf.Variable([1.0]))
    tf.train.Checkpoint(x=tf.Variable([1.0])).restore(path).assert_consumed()


def shared_checkpoint() -> None:
    # What the second of two replicas does, whose files the first has moved away.
    parts = [str(TMP / "ckpt-1_temp" / "part-00000-of-00001")]
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(TMP / "ckpt-1"))


def no_checkpoint() -> None:
    tf.train.load_checkpoint("/data/none")


def no_model() -> None:
    tf.saved_model.load("/data/saved")


def no_model__keras() -> None:
    keras.saving.load_model("/data/model.keras")


def no_such_file() -> None:
    Path("/data/train.csv").read_text()


def no_such_file__tensorflow() -> None:
    next(iter(tf.data.TFRecordDataset("/data/train.tfrecord")))


def not_a_number() -> None:
    tf.debugging.check_numerics(tf.constant([float("nan")]), "loss")


def _fit(loss: str, labels: list[int]) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile(loss=loss)
    model.fit(np.ones((4, 4)), np.array(labels), verbose=0)


def label_out_of_range() -> None:
    _fit("sparse_categorical_crossentropy", [0, 1, 2, 9])


def target_and_output() -> None:
    _fit("categorical_crossentropy", [0, 1, 2, 1])


def layer_input() -> None:
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])(tf.ones([2, 3]))


def shapes() -> None:
    tf.ones([2, 3]) + tf.ones([4, 5])


def shapes__matrices() -> None:
    tf.matmul(tf.ones([2, 3]), tf.ones([4, 5]))


def types() -> None:
    tf.ones([1], tf.float32) + tf.ones([1], tf.int32)


def per_replica() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    tf.reduce_mean(strategy.run(lambda: tf.constant(1.0)))


def keras_2_name() -> None:
    keras.metrics.Mean().reset_states()


def variable_in_function() -> None:
    tf.function(lambda x: x + tf.Variable(1.0))(tf.ones([1]))


def eager_only() -> None:
    tf.function(lambda x: x.numpy())(tf.ones([1]))


def tensorboard_missing() -> None:
    with mock.patch.dict(sys.modules, {"tensorboard": None}):
        tf.summary.scalar("loss", 1.0, step=0)


def module_missing() -> None:
    __import__("a_module_that_nobody_has")


def syntax() -> None:
    compile("def f(:\n  pass", "train.py", "exec")


def main() -> None:
    ways: dict[str, Callable[[], None]] = {
        name: way
        for name, way in globals().items()
        if callable(way) and getattr(way, "__module__", "") == "__main__" and name != "main" and name[0] != "_"
    }
    words = {}
    for name, way in ways.items():
        try:
            way()
        except Exception as error:  # noqa: BLE001
            words[name] = "".join(traceback.format_exception_only(error))
        else:
            words[name] = ""
    json.dump(words, sys.stdout)


if __name__ == "__main__":
    main()
