"""Options that are gone, and what does their work. Standard library only."""

from collections.abc import Mapping, Sequence

from dtj_trainer.errors import UsageError

_FIT = "call Keras' fit in a script, and give --script; the trainer has one loop, and --actions for it"
_PROFILER = "profile the input with TensorFlow's profiler, tf.profiler, in a script"
_OWN_SCHEDULE = "for another schedule, compile a model of your own with it, and give --model"
RETIRED: Mapping[str, str] = {
    "--balance": "stages have about as many parameters each; give --stages for others",
    "--callbacks": _FIT,
    "--class-weights": "return (inputs, labels, weights) of each example in a function of --data",
    "--data-service": "a job that has data workers reads by them; leave it out",
    "--decay-steps": f"a schedule ends at the last step; {_OWN_SCHEDULE}",
    "--features": "the first record shows them; for others, or for shapes, parse the records in a function of --data",
    "--input-memory": "TensorFlow limits its buffers to a quarter of the free memory",
    "--loop": _FIT,
    "--metrics": "compile a model of your own with them, and give --model",
    "--min-shard-bytes": "make a ParameterServerStrategy with a variable_partitioner in a script, and give --script",
    "--momentum": "give it to the optimizer, as in --optimizer=sgd --optimizer-options=momentum=0.9",
    "--on-nan-limit": "it is 10; leave it out",
    "--pack-gradients": "leave it out; each gradient has a sum of its own",
    "--pipeline-replicas": "each worker is a stage; leave it out",
    "--profile-input": _PROFILER,
    "--run-eagerly": "call tf.config.run_functions_eagerly(True) in the module of your --model",
    "--scale-learning-rate": "multiply the rate by the batch yourself, and give it as --learning-rate",
    "--shard": "the workers share each batch; for files of its own for each worker, give --script and shard there",
    "--shuffle-window": "it is 10,000 examples; shuffle in a function of --data, and give --no-shuffle",
    "--status-port": "set DTJ_STATUS_PORT",
    "--step-time": _PROFILER,
    "--store-retry-seconds": "set DTJ_STORE_RETRY_SECONDS",
    "--tpu-name": "set TPU_NAME",
    "--validation-batch-size": "a replica takes as many examples as --batch-size, at most 512; leave it out",
    "--warmup-steps": f"a tenth of the steps warms up; {_OWN_SCHEDULE}",
}
"""Option -> what remains."""


def refuse(arguments: Sequence[str]) -> None:
    """Refuses an option that is gone.

    Raises:
        UsageError: there is one.
    """
    for argument in arguments:
        if remains := RETIRED.get(argument.partition("=")[0]):
            raise UsageError(f"{argument}: this option is gone; {remains}")
