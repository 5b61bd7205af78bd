"""`python -m tests.notebook` makes the notebook of `examples/client.py`; `--run` runs its cells as Jupyter does.

In the example, `# %%` begins a cell, and `# %% [markdown]` one of text.
"""

import ast
import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[1] / "examples" / "client.py"
NOTEBOOK = EXAMPLE.with_suffix(".ipynb")
_CELL = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)


def cells(source: str) -> list[tuple[str, str]]:
    """The kind (markdown or code) and the content of each cell; what comes first is the docstring."""
    first, *rest = _CELL.split(source)
    found = [("markdown", ast.literal_eval(first.strip()).strip())]
    for mark, content in zip(rest[::2], rest[1::2], strict=True):
        text = content.strip()
        found.append(("markdown", re.sub(r"^# ?", "", text, flags=re.MULTILINE)) if mark else ("code", text))
    return found


def notebook(source: str) -> dict[str, Any]:
    """The notebook, without outputs."""
    made = []
    for number, (kind, text) in enumerate(cells(source)):
        of: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        of["source"] = text.splitlines(keepends=True)
        made.append(of | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


async def run(source: str) -> None:
    """Run the code cells one after the other in this event loop, and print what a notebook would show."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for kind, text in cells(source):
        if kind == "code":
            *before, last = ast.parse(text).body
            shown = isinstance(last, ast.Expr)
            exec(compile(ast.Module([*before, *([] if shown else [last])], []), "cell", "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
                if value is not None:
                    print(value._repr_html_())


if __name__ == "__main__":
    if "--run" in sys.argv:
        asyncio.run(run(EXAMPLE.read_text()))
    else:
        NOTEBOOK.write_text(json.dumps(notebook(EXAMPLE.read_text()), indent=1) + "\n")
