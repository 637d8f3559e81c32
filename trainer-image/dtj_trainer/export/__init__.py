"""The trained model, in the forms in which it is used: SavedModel, and what is converted from it.

`versions` and `conversion` are the standard library alone. The others import TensorFlow: `saved_model` in the trainer,
`tflite` and `tfjs` in a process of their own, which `conversion` starts.
"""
