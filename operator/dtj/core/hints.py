"""What to do about a failure whose words are known: one table, first match wins.

The patterns are TensorFlow's, Keras's, Python's, the shell's and the kubelet's own words; a test makes each of them
fail for real and compares. What a machine without GPUs cannot say has the report that quotes it as its ``source``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Hint:
    """``advice`` for failures of which ``pattern`` is found in the last words, or that ended with ``exit_code``."""

    name: str
    advice: str
    pattern: str = ""
    exit_code: int | None = None
    reason: str = ""
    source: str = ""

    def fits(self, *, message: str, reason: str, exit_code: int | None) -> bool:
        """Whether all that this hint names is so."""
        return (
            (not self.pattern or re.search(self.pattern, message) is not None)
            and (self.exit_code is None or self.exit_code == exit_code)
            and (not self.reason or self.reason == reason)
        )


def hint(*, message: str, reason: str, exit_code: int | None) -> str:
    """What to do; empty where nothing is known."""
    found = (h for h in HINTS if h.fits(message=message, reason=reason, exit_code=exit_code))
    return next((h.advice for h in found), "")


_SHARED_MEMORY: Final = (
    "shared memory is used up, of which a container has 64 MiB by default: mount an emptyDir with medium: Memory at "
    "/dev/shm"
)

_CPU: Final = (
    "the node's CPU lacks instructions that a library was built with, such as AVX: choose other nodes by nodeSelector"
)

_NOT_EXECUTABLE: Final = "the command exists, but is not executable: chmod +x it in the image"

HINTS: Final = (
    # -- the command
    Hint(
        "exec-format",
        "the image is for another CPU architecture than the node's, or a script has no #! line: build the image for "
        "the nodes, or choose nodes by nodeSelector kubernetes.io/arch",
        "[Ee]xec format error",
        source="k3s-io/k3s#2419",
    ),
    Hint(
        "not-started",
        "the image has no such command: each word of command is an item of its own; for one line write "
        "[sh, -c, 'python train.py']",
        r'exec: ".*": (executable file not found in \$PATH|stat .*: no such file or directory)',
        source="opencontainers/runc#4713",
    ),
    Hint(
        "not-started-by-mode",
        _NOT_EXECUTABLE,
        'exec: ".*": permission denied',
        source="aminvakil/docker-ocserv#52",
    ),
    Hint("not-executable", _NOT_EXECUTABLE, exit_code=126),
    Hint("no-such-command", "the image has no such command: check command and PATH", exit_code=127),
    # -- memory and machines
    Hint(
        "out-of-memory-killed",
        "the container used more memory than its limit: raise resources.limits.memory, or shrink batch and buffers",
        reason="OOMKilled",
    ),
    Hint(
        "device-out-of-memory",
        "the device has too little memory for a tensor: use a smaller batch per replica, or more replicas",
        r"OOM when allocating tensor|ResourceExhaustedError",
    ),
    Hint(
        "ephemeral-storage",
        "the pod wrote more to its own disk than it may: write to a volume (checkpoint.volume or "
        "checkpoint.claimTemplate)",
        "exceed(s|ed) (the|its)",
        reason="Evicted",
    ),
    Hint(
        "pod-deadline",
        "the pod ran longer than activeDeadlineSeconds of its template: raise it, or limit the whole job instead "
        "(runPolicy.activeDeadlineSeconds)",
        reason="DeadlineExceeded",
    ),
    Hint(
        "shared-memory-full",
        _SHARED_MEMORY,
        "/dev/shm.*No space left on device|No space left on device.*/dev/shm|posix_fallocate failed|"
        "Error while creating shared memory segment",
        source="NVIDIA/nccl#290, NVIDIA/nccl#525, pytorch/ci-infra#490",
    ),
    Hint("bus-error", _SHARED_MEMORY, r"\bBus error\b|\bSIGBUS\b", source="openai/mlsh#17, microsoft/RepPoints#18"),
    Hint(
        "disk-full",
        "a disk is full: enlarge the claim, or keep fewer checkpoints (checkpoint.keep)",
        "No space left on device",
    ),
    Hint(
        "quota-exceeded",
        "the volume's quota is used up: enlarge it, or keep fewer checkpoints (checkpoint.keep)",
        "Disk quota exceeded",
        source="errno(3), EDQUOT",
    ),
    Hint(
        "stale-file",
        "a file of a network volume was deleted or replaced while it was read: let no other job write there",
        "Stale file handle",
        source="errno(3), ESTALE",
    ),
    Hint(
        "too-many-threads",
        "the container may start no more threads: set OMP_NUM_THREADS, read fewer files in parallel, or raise the "
        "kubelet's podPidsLimit",
        "pthread_create failed|can't start new thread",
        source="OpenBLAS driver/others/blas_server.c, CPython Modules/_threadmodule.c",
    ),
    Hint("too-many-files", "too many files are open: read fewer in parallel, or close them", "Too many open files"),
    Hint(
        "read-only",
        "the place is read-only: write below the checkpoint or export directory, or mount an emptyDir",
        "Read-only file system",
    ),
    Hint(
        "not-permitted",
        "the container's user may not do this: set securityContext.fsGroup or runAsUser so that it owns the volume",
        "Permission denied",
    ),
    # -- the cluster
    Hint(
        "name-resolution",
        "a name does not resolve: inside a job take addresses from TF_CONFIG; outside, check DNS and network policies",
        "Name or service not known|Temporary failure in name resolution|DNS resolution failed",
    ),
    Hint(
        "port-taken",
        "TensorFlow's port is taken: start one server in a pod, or choose another port (spec.port; of a TFJob the "
        "container's port tfjob-port)",
        "Could not start gRPC server|Address already in use",
    ),
    Hint(
        "nccl-system-error",
        "NCCL met an error of the system, most often a full /dev/shm or a network that it cannot use: set "
        "NCCL_DEBUG=WARN in env and read what it says before this; for /dev/shm mount an emptyDir with medium: Memory",
        "unhandled system error",
        source="tensorflow/tensorflow#51760, NVIDIA/nccl#1039",
    ),
    Hint(
        "nccl-duplicate-gpu",
        "two replicas use one GPU, which NCCL cannot: let each pod request GPUs of its own",
        "Duplicate GPU detected",
        source="NVIDIA/nccl src/init.cc",
    ),
    Hint(
        "nccl-cuda-error",
        "NCCL met an error of CUDA: set NCCL_DEBUG=WARN in env and read what it says before this; look for memory that "
        "is used up, and a driver that is too old",
        "unhandled cuda error",
        source="NVIDIA/nccl#425",
    ),
    Hint(
        "strategy-too-late",
        "make the MultiWorkerMirroredStrategy before any other TensorFlow operation of the program",
        "Collective ops must be configured at program startup",
    ),
    Hint(
        "collective-shapes",
        "the workers sum values of different shapes: give all of them batches of one shape, and build the same model",
        "Shape mismatch in the collective instance|Collective instance .* expected",
        source="tensorflow/core/common_runtime/collective_param_resolver_local.cc",
    ),
    Hint(
        "collective-group",
        "the workers do not count the same devices: give all of them one TF_CONFIG, and as many GPUs each",
        "is joining a group (with|that is already full)|is joining a group with incompatible device type|"
        "found no source for broadcast",
        source="tensorflow/core/common_runtime/collective_param_resolver_local.cc",
    ),
    Hint(
        "collective-aborted",
        "another worker failed or ended first: look at its last words; all workers have to make the same calls",
        "Collective ops is aborted by|cluster check alive failed",
        source="tensorflow/tensorflow#51730",
    ),
    Hint(
        "tpu-without-name",
        "TPUClusterResolver needs the address of the TPU: inside a TPU pod use tpu='local'",
        "Please provide a TPU Name to connect to",
    ),
    Hint(
        "no-tpu",
        "no TPU, or no TensorFlow for TPUs: request google.com/tpu (by accelerator.profile), and use the trainer's "
        "tpu image",
        "TPUs not found in the cluster|ConfigureDistributedTPU",
    ),
    # -- data
    Hint(
        "url-scheme",
        "TensorFlow itself opens no such URL: mount the data; or use dtj_trainer.session(), which copies "
        "(checkpoint.path, export.path)",
        "File system scheme '.*' not implemented",
    ),
    Hint(
        "bucket-credentials",
        "TensorFlow finds no credentials for gs://: give them by the service account of the pods, or name a key in "
        "GOOGLE_APPLICATION_CREDENTIALS",
        "Could not locate the credentials file|metadata.google.internal",
        source="tensorflow/core/platform/cloud/google_auth_provider.cc",
    ),
    Hint(
        "file-in-use",
        "several workers write one file: let only DTJ_INDEX 0 write it, and the others to files of their own, or use "
        "dtj_trainer.session()",
        "unable to lock file|unable to truncate a file which is already open|database is locked",
    ),
    Hint(
        "file-sharding",
        "there are fewer files than workers: write more files, or set auto_shard_policy to DATA",
        "Could not apply FILE based sharding",
    ),
    Hint(
        "no-record-file",
        "the file is no TFRecord file, is compressed or is damaged: check the path; if it is compressed, give "
        "compression_type, such as GZIP",
        "corrupted record at",
    ),
    Hint(
        "cache-in-use",
        "several workers, or attempts, use one file of dataset.cache(): give each pod one of its own, on an emptyDir; "
        "to delete the lock would let them overwrite each other",
        "cache lockfile already exists",
        source="tensorflow/tensorflow#18266, tensorflow/tensorflow#28798",
    ),
    Hint(
        "end-of-data",
        "the data ended before the steps did: call dataset.repeat(), or lower steps_per_epoch",
        "End of sequence|ran out of data",
    ),
    Hint(
        "ragged",
        "rows have different lengths: pad them, or use a ragged tensor",
        "non-rectangular Python sequence",
    ),
    # -- checkpoints and models
    Hint(
        "other-shape-in-checkpoint",
        "the checkpoint was written by another model: use another checkpoint directory, or the previous model",
        "attempting to restore variable with shape|Shapes of all inputs must match|but the checkpoint had shape",
    ),
    Hint(
        "other-objects-in-checkpoint",
        "the checkpoint does not hold what the program wants to restore: use another directory, or expect_partial()",
        "were not bound to checkpointed values|Unresolved object in checkpoint",
    ),
    Hint(
        "shared-checkpoint",
        "several replicas write one checkpoint: let only DTJ_INDEX 0 write it, and the others to directories of their "
        "own, or use dtj_trainer.session()",
        r"MergeV2Checkpoints|allow_missing_files was set to false",
    ),
    Hint(
        "no-checkpoint",
        "there is no checkpoint at this path: check it, and that the volume is mounted in every pod",
        "Unsuccessful TensorSliceReader constructor",
    ),
    Hint(
        "no-model",
        "there is no saved model at this path: check it, and that the volume is mounted",
        r"SavedModel file does not exist|ensure the file is an accessible `\.keras`",
    ),
    Hint(
        "shared-library",
        "a shared library is missing or too old in the image: install the package that has it, in the version that "
        "the program was built for",
        "ImportError: .*cannot open shared object file|version .GLIBC.* not found|version .CXXABI.* not found",
        source="ld.so(8), glibc elf/dl-load.c and elf/dl-version.c",
    ),
    Hint(
        "no-such-file",
        "a path does not exist where the program runs: correct it; for pods, send your files with --code or mount them",
        "(?<!cannot open shared object file: )No such file or directory|Could not find directory|FileNotFoundError",
    ),
    # -- the program
    Hint(
        "not-a-number",
        "the loss or a gradient is not a number: lower the learning rate, clip gradients, look for log and division",
        "Tensor had (NaN|Inf)|NaN values|Inf and NaN",
    ),
    Hint(
        "label-out-of-range",
        "a label is not below the number of classes: enlarge the last layer, or renumber the labels from 0",
        r"Received a label value of|outside the valid range",
    ),
    Hint(
        "target-and-output",
        "labels and output have different shapes: integer labels need a sparse loss, one-hot labels a categorical one",
        "`target` and `output` must have the same",
    ),
    Hint(
        "layer-input",
        "the data has another shape than the model's input: adjust the input layer or the data",
        "is incompatible with the layer",
    ),
    Hint(
        "shapes",
        "tensors do not fit each other: compare the two shapes that the message names",
        "Incompatible shapes|size-incompatible|must be broadcastable",
    ),
    Hint(
        "types",
        "an operation got numbers of two types: tf.cast one of them",
        r"was expected to be an? \w+ tensor but is an? \w+ tensor",
    ),
    Hint(
        "per-replica",
        "a value that differs by replica is used as one tensor: reduce it first, as by strategy.reduce",
        r"values\.PerReplica|using a PerReplica object",
    ),
    Hint(
        "keras-2-name",
        "this is a name of Keras 2: in Keras 3 a metric has reset_state(); or set TF_USE_LEGACY_KERAS=1 in env",
        "has no attribute 'reset_states'",
    ),
    Hint(
        "variable-in-function",
        "a tf.function makes variables at each call: make them once, outside",
        "only supports singleton tf.Variables",
    ),
    Hint(
        "eager-only",
        "inside tf.function a tensor has no value yet: use TensorFlow operations, or tf.py_function",
        "'SymbolicTensor' object has no attribute 'numpy'|numpy\\(\\) is only available when eager",
    ),
    Hint(
        "tensorboard-missing",
        "tf.summary needs the Python package tensorboard: add it to the image",
        "TBNotInstalledError|No module named 'tensorboard",
    ),
    Hint(
        "module-missing",
        "a Python package is missing where the program runs: add it to the image, or to the Python of dtj run",
        "ModuleNotFoundError|No module named",
    ),
    Hint(
        "syntax", "the program is not valid Python for the image's version: see the line that it names", "SyntaxError"
    ),
    Hint(
        "unknown-user",
        "the container's user has no name in the image: set USER and HOME in env, such as USER=trainer and HOME=/tmp",
        r"getpwuid\(\): uid not found|No username set in the environment",
        source="matplotlib/matplotlib#17707, CPython Lib/getpass.py",
    ),
    Hint(
        "cpu-too-old",
        _CPU,
        r"was compiled to use .* instructions, but these aren't available|\bIllegal instruction\b",
        source="tensorflow/tsl platform/cpu_feature_guard.cc",
    ),
    Hint(
        "arguments",
        "the program does not know an argument: compare the template's args with its --help",
        "unrecognized arguments|the following arguments are required|invalid choice:",
    ),
    # -- GPUs and drivers: TensorFlow may print these and go on, so whatever else is known comes first
    Hint(
        "driver-too-old",
        "the node's NVIDIA driver does not fit the image's CUDA: update the driver, or use an image with an older CUDA",
        "driver version is insufficient|does not match DSO version|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|"
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        source="tensorflow/tensorflow#21832, NVIDIA/nvidia-docker#399",
    ),
    Hint(
        "gpu-memory-taken",
        "the GPU has too little free memory: let each pod request GPUs of its own, or use a smaller batch",
        "CUDA_ERROR_OUT_OF_MEMORY",
        source="CUDA driver API, CUresult 2",
    ),
    Hint(
        "dnn-library",
        "cuDNN does not start: most often the GPU's memory is taken, so let each pod request GPUs of its own; or the "
        "image has another cuDNN than TensorFlow was built for",
        "DNN library initialization failed|[Cc]ould not create cudnn handle|DNN library is not found",
        source="tensorflow/tensorflow#24496, tensorflow/tensorflow#14111",
    ),
    # -- only an exit code
    Hint("cpu-too-old-by-code", _CPU, exit_code=132),
    Hint("aborted", "the program ended itself by abort(): look above for a failed check of a library", exit_code=134),
    Hint("bus-error-by-code", _SHARED_MEMORY, exit_code=135),
    Hint(
        "killed",
        "something killed the program, most often because memory ran out: use fewer replicas or smaller batches, "
        "or set resources.requests.memory",
        reason="Error",
        exit_code=137,
    ),
    Hint(
        "segmentation-fault",
        "a library crashed: compare its version with TensorFlow's, and drop custom operations built for another one",
        exit_code=139,
    ),
    # -- what a program without a GPU says, too
    Hint(
        "no-gpu",
        "the program found no GPU: if it needs one, request nvidia.com/gpu (by accelerator.profile), and check the "
        "node's device plugin",
        "CUDA_ERROR_NO_DEVICE|no CUDA-capable device is detected",
        source="CUDA driver API, CUresult 100",
    ),
)
