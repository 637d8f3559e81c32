"""Options and their values, and TF_CONFIG. Must not import TensorFlow."""
