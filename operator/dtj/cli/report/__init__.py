"""``dtj report``: what is known of a job, gathered once, without secrets; as a bundle of files or as one page.

Each source (:mod:`~dtj.cli.report.cluster`, :mod:`~dtj.cli.report.run`) gives the same
:class:`~dtj.cli.report.evidence.Evidence`; all that is made of it is pure.
"""
