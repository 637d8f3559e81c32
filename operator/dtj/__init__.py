"""DistributedTrainingJob: TensorFlow's distribution strategies on Kubernetes, from one manifest.

The package is layered; imports go downwards only (``lint-imports`` checks it)::

    app | cli       composition root of the operator; the command line
    client | local  jobs of a cluster from Python; the local runner, whose pods are processes of this machine
    engine          work queue, expectations, executor, controller loop
    kube            the API server, and its objects as the planner reads them
    core            pure decisions
    api             the contract with users
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
