"""Completion in PowerShell, which Click does not offer."""

from __future__ import annotations

import os
from typing import Final

from click.shell_completion import CompletionItem, ShellComplete, add_completion_class

NAME: Final = "powershell"

_SCRIPT: Final = """\
Register-ArgumentCompleter -Native -CommandName %(prog_name)s -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = $commandAst.CommandElements | Where-Object { $_.Extent.StartOffset -lt $cursorPosition }
    $env:%(complete_var)s = 'powershell_complete'
    $env:COMP_WORDS = ($words | ForEach-Object { $_.ToString() }) -join "`n"
    $env:COMP_INCOMPLETE = $wordToComplete
    try {
        %(prog_name)s | ForEach-Object {
            $kind, $value, $help = $_ -split "`t", 3
            if ($kind -eq 'plain') {
                [System.Management.Automation.CompletionResult]::new($value, $value, 'ParameterValue', $help)
            }
        }
    } finally {
        Remove-Item -ErrorAction SilentlyContinue Env:%(complete_var)s, Env:COMP_WORDS, Env:COMP_INCOMPLETE
    }
}
"""
"""If there are no results, PowerShell completes names of files by itself."""


class PowerShellComplete(ShellComplete):
    """Asks ``dtj`` for candidates: a kind, a value and a help text in each line, with tabs between them."""

    name = NAME
    source_template = _SCRIPT

    def get_completion_args(self) -> tuple[list[str], str]:
        words, incomplete = os.environ["COMP_WORDS"].split("\n")[1:], os.environ.get("COMP_INCOMPLETE", "")
        return (words[:-1] if incomplete and words[-1:] == [incomplete] else words), incomplete

    def format_completion(self, item: CompletionItem) -> str:
        # PowerShell refuses a result whose help text is empty.
        return f"{item.type}\t{item.value}\t{item.help or item.value}"


def register() -> None:
    """Make Click know the shell."""
    add_completion_class(PowerShellComplete)
