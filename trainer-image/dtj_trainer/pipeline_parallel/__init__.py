"""Strategy Pipeline: GPipe over the workers of a job (Huang et al., arXiv:1811.06965).

The model is cut into stages, one on each worker; a batch is cut into micro-batches that follow each other through
them. The leader drives: one TensorFlow call holds all micro-batches of several steps, and TensorFlow's executors,
which send what one stage needs of another, overlap the stages by themselves. The workers only serve.
"""
