"""``dtj convert``: TFJobs of Kubeflow as jobs of ours."""
