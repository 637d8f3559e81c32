"""Repairs of Keras' own `fit`, `evaluate` and `predict` in scripts: what `override` replaces, and what that needs."""
