"""``dtj suspend``, ``resume``, ``scale`` and ``delete``."""
