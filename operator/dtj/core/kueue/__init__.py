"""Kueue: a Workload for each job that waits in a queue. Kueue says when the job runs, and on which nodes.

:mod:`~dtj.core.kueue.queue`, :mod:`~dtj.core.kueue.default_queue` and :mod:`~dtj.core.kueue.multikueue` are policies of
the planner. The API of the jobs has Kueue's labels and annotations: see :mod:`dtj.api.kueue`.
"""
