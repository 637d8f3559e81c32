"""The training process of a DistributedTrainingJob.

One command, `python -m dtj_trainer`, is every replica of a job: it reads TF_CONFIG and the DTJ_* variables,
trains, checkpoints, resumes and reports. Importing this package, or any module that `__main__` needs to
reject a bad command line, must not import TensorFlow.
"""

__version__ = "0.1.0"
