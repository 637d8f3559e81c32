"""The operator's composition root: settings, kopf, health, and the process."""
