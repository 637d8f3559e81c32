"""One file for each policy of a job. A policy is a function of :class:`~dtj.core.context.JobContext`.

It returns a :class:`~dtj.core.actions.Decision`, or None if it has nothing to say about this job. Which policy takes
precedence over which is decided in :mod:`dtj.core.planner` alone.
"""
