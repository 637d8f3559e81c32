"""The manifests of the objects that a job owns, as JSON ready to be created."""
