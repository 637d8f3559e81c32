"""``dtj completion``, and the answers to kubectl, which completes ``kubectl dtj`` by ``kubectl_complete-dtj``."""

from dtj.cli.completion.command import answer_kubectl

__all__ = ["answer_kubectl"]
