"""TensorFlow's distribution strategies: how they are made, and what workers agree on. Imports TensorFlow."""
