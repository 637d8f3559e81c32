"""Run the code of a notebook, but for its calls of the shell; write what each last expression of a cell gives.

usage: run_notebook.py NOTEBOOK ANSWERS
"""

import ast
import json
import sys
from pathlib import Path


def main(notebook: str, answers: str) -> None:
    """Run all cells in one namespace."""
    known: dict[str, object] = {}
    found: dict[str, str] = {}
    for cell in json.loads(Path(notebook).read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        lines = "".join(cell["source"]).splitlines()
        tree = ast.parse("\n".join(line for line in lines if not line.startswith("!")))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, notebook, "exec"), known)
        if isinstance(last, ast.Expr):
            words = ast.unparse(last)
            found[words] = repr(eval(compile(ast.Expression(last.value), notebook, "eval"), known))
    Path(answers).write_text(json.dumps(found))


main(*sys.argv[1:])
