"""The object that admits the pods of a job: the PodGroup of a gang scheduler, or the Workload of Kueue.

Which scheduler a job uses, the group that its pods are, and what differs between the schedulers. Kueue's labels and
annotations are part of the API of the jobs: see :mod:`dtj.api.kueue`.
"""
