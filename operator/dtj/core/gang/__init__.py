"""Gang schedulers: one file for what differs between them, behind the protocol of :mod:`dtj.core.gang.group`.

Sources: the Workload and PodGroup API of Kubernetes (KEP-4671, KEP-5832), the PodGroups of Volcano and of the scheduler
plugins (KEP-42 of kubernetes-sigs), Kueue's Workload API.
"""
