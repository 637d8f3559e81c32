"""Behaviours of an operator of TensorFlow jobs as data, and a runner that tries them on any cluster."""
