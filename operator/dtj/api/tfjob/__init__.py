"""TFJobs of Kubeflow (``kubeflow.org/v1``), served as they are."""
