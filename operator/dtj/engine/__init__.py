"""The machine: takes keys from a queue, has them planned, carries the plans out. Knows no policy.

Begin with :mod:`dtj.engine.supervision`, which says what happens when something goes wrong, and go on with
:mod:`dtj.engine.engine`, which puts the parts together.
"""
