"""The API server: verbs, watching, typed errors. Nothing here knows what a training job needs."""
