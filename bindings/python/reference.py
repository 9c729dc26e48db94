"""Writes the reference of the Python package, ``docs/python-reference.md``, from the docstrings of its modules.

    python bindings/python/reference.py            # writes the page
    python bindings/python/reference.py --check    # fails if the page is not up to date

The sources are parsed and not imported, so this needs neither the package nor what its modules import.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import TypeAlias

PACKAGE = Path(__file__).resolve().parent / "python" / "dphe"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "python-reference.md"
WIDTH = 110
PROPERTIES = {"property", "cached_property"}

HEADER = """\
# Reference of the Python package

This page lists every public class, function and exception of the package `dphe`, for people who write Python.
[python.md](python.md) explains how to use them. `bindings/python/reference.py` writes this page from the docstrings,
and `scripts/test-python` runs their examples. `help(dphe)` shows the same text.
"""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> Iterator[tuple[str, Path]]:
    """Return the names and files of the public modules, which have ``__all__``."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ["dphe", *path.relative_to(PACKAGE).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        public = not any(part.startswith("_") for part in parts)
        if public and exports(ast.parse(path.read_text())):
            yield ".".join(parts), path


def page() -> str:
    """Return the whole page."""
    named = sorted(modules())
    texts = [module(name, path.read_text()) for name, path in named]
    contents = [f"* [{name}](#{re.sub('[^a-z_-]', '', name)})" for name, _ in named]
    return "\n".join([HEADER, *contents, ""]) + "\n" + "\n".join(texts)


def module(name: str, source: str) -> str:
    """Return the section of a module: its docstring, and what it exports in the order of its source."""
    tree = ast.parse(source)
    parts = [f"## {name}", text(ast.get_docstring(tree) or "")]
    parts += definitions(name, source, exports(tree))
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dphe."):
            path = PACKAGE.joinpath(*(node.module or "").split(".")[1:]).with_suffix(".py")
            hidden = path.exists() and not exports(ast.parse(path.read_text()))
            names = {alias.name for alias in node.names} & exports(tree)
            if hidden and names:
                # Nobody else documents what comes from a module that has no section.
                parts += definitions(name, path.read_text(), names)
    return "\n\n".join(part for part in parts if part) + "\n"


def definitions(name: str, source: str, exported: set[str]) -> Iterator[str]:
    """Return the parts of the functions and classes with these names, under the name of a module."""
    for node in ast.parse(source).body:
        if isinstance(node, Function) and node.name in exported:
            yield from function(node, f"### {name}.{node.name}", node.name)
        elif isinstance(node, ast.ClassDef) and node.name in exported:
            yield from class_(node, name, source.split("\n"))


def exports(tree: ast.Module) -> set[str]:
    """Return the names in ``__all__``."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def class_(node: ast.ClassDef, module_name: str, lines: list[str]) -> Iterator[str]:
    """Return the parts of a class: how it is made, its docstring, its attributes and its methods."""
    yield f"### {module_name}.{node.name}"
    methods = [member for member in node.body if isinstance(member, Function)]
    made = next((method for method in methods if method.name == "__init__"), None)
    making = (ast.get_docstring(made) or "") if made else ""
    if made is None or making.startswith("Refuse") or "_core." in signature(made, ""):
        # Callers do not make objects of this class.
        named = [ast.unparse(base) for base in node.bases]
        bases = ", ".join(base for base in named if not base.startswith("_"))
        yield code(f"class {node.name}" + (f"({bases})" if bases else ""))
        yield text(ast.get_docstring(node) or "")
    else:
        yield code(signature(made, node.name))
        yield text(ast.get_docstring(node) or "")
        yield text(making)
    attributes = [field(member, lines) for member in node.body if isinstance(member, ast.AnnAssign)]
    attributes += [attribute(method) for method in methods if PROPERTIES & decorators(method)]
    yield "\n".join(line for line in attributes if line)
    for method in methods:
        if not method.name.startswith("_") and not PROPERTIES & decorators(method):
            of_class = {"classmethod", "staticmethod"} & decorators(method)
            name = f"{node.name}.{method.name}" if of_class else method.name
            yield from function(method, f"#### {node.name}.{method.name}", name)


def field(node: ast.AnnAssign, lines: list[str]) -> str:
    """Return the line of a field, which the comment before it describes, or nothing if there is none."""
    name, comment = ast.unparse(node.target), lines[node.lineno - 2].strip()
    if name.startswith("_") or not comment.startswith("#: "):
        return ""
    return wrapped(f"`{name}`: `{ast.unparse(node.annotation)}`. {inline(comment[3:])}", "* ", "  ")


def attribute(node: Function) -> str:
    """Return the line of a property, or nothing if it is private."""
    if node.name.startswith("_"):
        return ""
    returned = f": `{ast.unparse(node.returns)}`" if node.returns else ""
    first = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
    return wrapped(f"`{node.name}`{returned}. {inline(first)}", "* ", "  ")


def function(node: Function, heading: str, name: str) -> Iterator[str]:
    """Return the parts of a function."""
    if "overload" in decorators(node):
        return
    yield heading
    yield code(signature(node, name))
    yield text(ast.get_docstring(node) or "")


def decorators(node: Function) -> set[str]:
    """Return the names of the decorators of a function."""
    return {ast.unparse(decorator).split("(")[0].rpartition(".")[2] for decorator in node.decorator_list}


def signature(node: Function, name: str) -> str:
    """Return a call with all parameters, without ``self``, on one line or one parameter per line."""
    parameters = node.args
    words: list[str] = []
    plain = [*parameters.posonlyargs, *parameters.args]
    defaults = [None] * (len(plain) - len(parameters.defaults)) + list(parameters.defaults)
    for number, (argument, default) in enumerate(zip(plain, defaults, strict=True)):
        if number == 0 and argument.arg in ("self", "cls"):
            continue
        words.append(parameter(argument, default))
    if parameters.vararg:
        words.append(f"*{parameter(parameters.vararg, None)}")
    elif parameters.kwonlyargs:
        words.append("*")
    for argument, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
        words.append(parameter(argument, default))
    if parameters.kwarg:
        words.append(f"**{parameter(parameters.kwarg, None)}")
    made = node.name == "__init__"
    returned = f" -> {ast.unparse(node.returns)}" if node.returns and not made else ""
    one_line = f"{name}({', '.join(words)}){returned}"
    if len(one_line) <= WIDTH:
        return one_line
    return "\n".join([f"{name}(", *(f"    {word}," for word in words), f"){returned}"])


def parameter(argument: ast.arg, default: ast.expr | None) -> str:
    """Return a parameter with its type and its default."""
    typed = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    if default is None:
        return argument.arg + typed
    equals = " = " if typed else "="
    return f"{argument.arg}{typed}{equals}{ast.unparse(default)}"


def code(lines: str) -> str:
    """Return a block of code."""
    return f"```python\n{lines}\n```"


def text(docstring: str) -> str:
    """Return a docstring as Markdown: paragraphs, examples, tables, lists and numpy's sections."""
    blocks = re.split(r"\n\n+", cleandoc(docstring))
    found: list[str] = []
    example = False
    for block in blocks:
        if block.startswith(">>> "):
            # Examples that follow each other are one.
            if example:
                found[-1] = f"{found[-1].removesuffix('```')}\n{block}\n```"
            else:
                found.append(code(block))
            example = True
            continue
        example = False
        if block.startswith(".. code-block::"):
            continue
        lines = block.split("\n")
        if lines[0].startswith("==="):
            found.append(table(lines))
        elif len(lines) > 1 and set(lines[1]) == {"-"}:
            found += section(lines)
            example = found[-1].startswith("```")
        elif block.startswith("    "):
            found.append(code(cleandoc(block)))
        elif block.startswith("* "):
            items = re.split(r"\n(?=\* )", block)
            found.append(
                "\n".join(wrapped(item.removeprefix("* "), "* ", "  ") for item in map(inline, items))
            )
        else:
            found.append(wrapped(inline(block)))
    return "\n\n".join(part for part in found if part)


def section(lines: list[str]) -> list[str]:
    """Return one of numpy's sections: a bold word, and an item per entry or the example below it."""
    title, body = lines[0], lines[2:]
    if body and body[0].startswith(">>> "):
        return [code("\n".join(body))]
    items: list[str] = []
    for line in body:
        if line.startswith("    "):
            items[-1] += " " + line.strip()
        else:
            names, _, kind = line.partition(" : ")
            items.append(f"`{names}`" + (f" ({inline(kind)})" if kind else "") + ":")
    return [f"**{title}**", "\n".join(wrapped(inline(item), "* ", "  ") for item in items)]


def table(lines: list[str]) -> str:
    """Return a table. Its columns are those of the row of equals signs."""
    starts = [match.start() for match in re.finditer("=+", lines[0])]
    rows = [line for line in lines if not line.startswith("===")]
    cells = [
        [inline(line[start:end].strip()) for start, end in zip(starts, [*starts[1:], None], strict=True)]
        for line in rows
    ]
    cells.insert(1, ["---"] * len(starts))
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def inline(words: str) -> str:
    """Return words with Markdown's code spans."""
    words = re.sub(r":[a-z]+:`~?([^`]*)`", r"`\1`", words)
    words = re.sub(r"`([^`<]+) <([^>]+)>`_", r"[\1](\2)", words)
    return re.sub(r"``([^`]+)``", r"`\1`", words)


def wrapped(words: str, first: str = "", later: str = "") -> str:
    """Return words in lines of at most 120 columns that break outside of code spans."""
    lines, line = [], first
    for word in re.findall(r"(?:`[^`]*`|\S)+", words):
        if len(line) + len(word) > 119 and line.strip():
            lines.append(line.rstrip())
            line = later
        line += word + " "
    return "\n".join([*lines, line.rstrip()])


def main() -> int:
    """Write the page, or compare it."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if the page is not up to date")
    options = parser.parse_args()
    if not options.check:
        PAGE.write_text(page())
        return 0
    if PAGE.exists() and PAGE.read_text() == page():
        return 0
    print(f"error: docs/{PAGE.name} is not up to date; run bindings/python/reference.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
