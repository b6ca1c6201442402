"""Break a file in every way that a small set of operators knows: what nobody thought of when the list was written.

Each change replaces one piece of the source and leaves every line where it was. Left alone are texts, types, imports
and decorators, and what is written down for the type checker.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Negated, and where there is an order also off by one.
COMPARISONS = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
COMPARISON = re.compile(rb"<=|>=|==|!=|<|>|\bis\s+not\b|\bnot\s+in\b|\bis\b|\bin\b")
ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.LShift: ("<<", ">>"),
}
# DynamoDB's words in an expression; only in texts that have a placeholder or ask for an attribute.
EXPRESSION = re.compile(r":[a-z_]+\b|attribute_(?:not_)?exists")
IN_EXPRESSIONS = {
    " AND ": " OR ",
    " OR ": " AND ",
    " <= ": " < ",
    " > ": " >= ",
    " = ": " <> ",
    "attribute_not_exists(": "attribute_exists(",
}
MEMBERS = {
    "Status": ("COMPLETED", "REJECTED", "FAILED", "PROCESSING", "UNCERTAIN"),
    "Semantics": ("AT_LEAST_ONCE", "AT_MOST_ONCE"),
    "Delivery": ("PENDING", "SENT"),
}
OTHER_CALL = {"min": "max", "max": "min"}
# What may stand for each other; a text or a list in the place of a number is noticed by whatever runs it.
ALIKE = (ast.Name, ast.Attribute, ast.Call, ast.BinOp)
LONGEST_TEXT = 90


@dataclass(frozen=True)
class Change:
    """One way to break a file.

    Args:
        file: Its name.
        scope: The function or class that it is in.
        operator: What was done.
        old: The text that stood there, in one line.
        new: What stands there now, the same.
        lines: Statements that a test must reach to notice it, any of them; none where it is no function's.
        constant: The name that a statement outside any function gives a value to, if it does.
        start: Where the old text begins, in bytes.
        end: Where it ends.
        text: The new text as it is.
        number: Which it is of those that read the same.
    """

    file: str
    scope: str
    operator: str
    old: str
    new: str
    lines: tuple[int, ...]
    constant: str | None
    start: int
    end: int
    text: str
    number: int = 1

    @property
    def name(self) -> str:
        """What names it as long as its function keeps its name and its text."""
        again = f" #{self.number}" if self.number > 1 else ""
        return f"{self.file} {self.scope}: {self.operator}: {self.old} -> {self.new}{again}"

    def applied_to(self, source: str) -> str:
        """Return the file with the change in it."""
        raw = source.encode()
        return (raw[: self.start] + self.text.encode() + raw[self.end :]).decode()


def changes_of(file: str, source: str) -> list[Change]:
    """Return every change of a file, in its order."""
    seen: Counter[tuple[str, str, str, str]] = Counter()
    found = []
    for change in sorted(_Finder(file, source).find(), key=lambda each: (each.start, each.end, each.text)):
        same = (change.scope, change.operator, change.old, change.new)
        seen[same] += 1
        found.append(replace(change, number=seen[same]))
    return found


def statements_of(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield every list of statements of a tree."""
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list) and statements and isinstance(statements[0], ast.stmt):
                yield statements


def _is_for_types(node: ast.stmt) -> bool:
    """Return whether a statement is an import under ``TYPE_CHECKING``, or names a union of classes."""
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(value=ast.BinOp(op=ast.BitOr()) as union):
            return all(each.id[:1].isupper() for each in ast.walk(union) if isinstance(each, ast.Name))
        case _:
            return False


def _is_unreachable(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and "assert_never" in ast.unparse(node)


class _Finder:
    """Walks one file."""

    def __init__(self, file: str, source: str) -> None:
        self._file = file
        self._source = source
        self._raw = source.encode()
        self._starts = [0]
        for line in self._raw.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._scope: list[str] = []
        self._in_function = False
        self._lines: tuple[int, ...] = ()
        self._constant: str | None = None

    def find(self) -> Iterator[Change]:
        """Yield every change, in no order."""
        yield from self._statements(ast.parse(self._source).body)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        line, end_line = node.lineno, node.end_lineno  # type: ignore[attr-defined]  # whatever stands in the source
        start = self._starts[line - 1] + node.col_offset  # type: ignore[attr-defined]
        return start, self._starts[end_line - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._raw[start:end].decode()

    def _change(self, operator: str, span: tuple[int, int], text: str, shown: tuple[str, str] | None = None) -> Change:
        old, new = shown or (self._raw[span[0] : span[1]].decode(), text)
        short = [" ".join(each.split()) for each in (old, new)]
        old, new = (each if len(each) <= LONGEST_TEXT else f"{each[:LONGEST_TEXT]}..." for each in short)
        scope = ".".join(self._scope) or "the module"
        return Change(self._file, scope, operator, old, new, self._lines, self._constant, *span, text)

    # ------------------------------------------------------------------ statements

    def _statements(self, body: Iterable[ast.stmt]) -> Iterator[Change]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from self._definition(node)
            elif not (isinstance(node, ast.Import | ast.ImportFrom) or _is_for_types(node) or _is_unreachable(node)):
                before = self._lines, self._constant
                if self._in_function:
                    self._lines = (node.lineno,)
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    self._constant = node.targets[0].id
                yield from self._statement(node)
                self._lines, self._constant = before

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[Change]:
        self._scope.append(node.name)
        before = self._in_function, self._lines
        if not isinstance(node, ast.ClassDef):
            # A default counts wherever the function runs.
            self._lines = tuple(each.lineno for each in node.body if not _is_text(each))[:1]
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    yield from self._expression(default)
            self._in_function = True
        yield from self._statements(node.body)
        self._in_function, self._lines = before
        self._scope.pop()

    def _statement(self, node: ast.stmt) -> Iterator[Change]:
        span = self._span(node)
        match node:
            case ast.Expr(value=ast.Constant()):
                return
            case ast.Expr(value=ast.Call()):
                yield self._change("dropped", span, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign() | ast.Raise():
                yield self._change("dropped", span, "pass")
            case ast.Return(value=value) if value is not None and not _is_none(value):
                yield self._change("returns nothing", self._span(value), "None")
            case ast.Break():
                yield self._change("goes on", span, "continue")
            case ast.Continue():
                yield self._change("stops", span, "break")
            case ast.With(items=[*_, last]) if all(item.optional_vars is None for item in node.items):
                yield self._change("dropped", (span[0], self._span(last.context_expr)[1]), "if True")
            case _:
                pass
        yield from self._parts(node)

    def _parts(self, node: ast.stmt) -> Iterator[Change]:
        if isinstance(node, ast.If):
            yield from self._both_ways(node.test)
        elif isinstance(node, ast.While):
            yield self._change("never", self._span(node.test), "False")
        for field, value in ast.iter_fields(node):
            if field == "annotation":
                continue
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.stmt):
                    yield from self._statements([each])
                elif isinstance(each, ast.ExceptHandler):
                    yield from self._handler(each)
                elif isinstance(each, ast.match_case):
                    yield from self._case(each)
                elif isinstance(each, ast.withitem):
                    yield from self._expression(each.context_expr)
                elif isinstance(each, ast.expr):
                    yield from self._expression(each)

    def _handler(self, node: ast.ExceptHandler) -> Iterator[Change]:
        before, self._lines = self._lines, (node.body[0].lineno,)
        if node.type is not None:
            yield self._change("not caught", self._span(node.type), "()")
            yield from self._expression(node.type)
        yield from self._statements(node.body)
        self._lines = before

    def _case(self, node: ast.match_case) -> Iterator[Change]:
        if _is_unreachable(node.body[0]):
            return
        before, self._lines = self._lines, (node.body[0].lineno,)
        if node.guard is None:
            end = self._span(node.pattern)[1]
            pattern = self._text(node.pattern)
            yield self._change("case left out", (end, end), " if False", (f"case {pattern}", "no such case"))
        else:
            yield from self._expression(node.guard)
        yield from self._statements(node.body)
        self._lines = before

    # ------------------------------------------------------------------ expressions

    def _both_ways(self, test: ast.expr) -> Iterator[Change]:
        for value in ("True", "False"):
            yield self._change("condition", self._span(test), value)

    def _expression(self, node: ast.expr) -> Iterator[Change]:
        if isinstance(node, ast.JoinedStr):
            return
        yield from self._of(node)
        if isinstance(node, ast.IfExp):
            yield from self._both_ways(node.test)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from self._expression(child)
            elif isinstance(child, ast.keyword):
                yield from self._expression(child.value)
            elif isinstance(child, ast.comprehension):
                for test in child.ifs:
                    yield self._change("condition", self._span(test), "True")
                    yield from self._expression(test)
                yield from self._expression(child.iter)

    def _of(self, node: ast.expr) -> Iterator[Change]:
        match node:
            case ast.Compare():
                yield from self._compare(node)
            case ast.BoolOp():
                yield from self._bool(node)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._change("not", self._span(node), f"({self._text(operand)})")
            case ast.BinOp(op=ast.BitOr()):
                for each in (node.left, node.right):
                    yield self._change("half of a union", self._span(node), f"({self._text(each)})")
            case ast.BinOp() if type(node.op) in ARITHMETIC:
                old, new = ARITHMETIC[type(node.op)]
                gap = self._span(node.left)[1], self._span(node.right)[0]
                text = self._raw[slice(*gap)].decode()
                shown = self._text(node), f"{self._text(node.left)} {new} {self._text(node.right)}"
                yield self._change("arithmetic", gap, text.replace(old, new, 1), shown)
            case ast.Constant():
                yield from self._constants(node)
            case ast.Attribute(value=ast.Name(id=name), attr=member) if member in MEMBERS.get(name, ()):
                members = MEMBERS[name]
                other = members[(members.index(member) + 1) % len(members)]
                yield self._change("another member", self._span(node), f"{name}.{other}")
            case ast.Dict(keys=keys, values=values):
                entries = [self._entry(key, value) for key, value in zip(keys, values, strict=True)]
                for position, entry in enumerate(entries):
                    rest = entries[:position] + entries[position + 1 :]
                    yield self._change("entry left out", self._span(node), f"{{{', '.join(rest)}}}", (entry, "nothing"))
            case ast.Call():
                yield from self._call(node)
            case _:
                pass

    def _entry(self, key: ast.expr | None, value: ast.expr) -> str:
        return f"**{self._text(value)}" if key is None else f"{self._text(key)}: ({self._text(value)})"

    def _compare(self, node: ast.Compare) -> Iterator[Change]:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            start, end = self._span(left)[1], self._span(right)[0]
            found = COMPARISON.search(self._raw, start, end)
            for new in COMPARISONS[type(operator)]:
                if found is not None:
                    shown = self._text(node), f"{self._text(left)} {new} {self._text(right)}"
                    yield self._change("comparison", found.span(), new, shown)
            left = right

    def _bool(self, node: ast.BoolOp) -> Iterator[Change]:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            gap = self._span(left)[1], self._span(right)[0]
            text = re.sub(rf"\b{old}\b", new, self._raw[slice(*gap)].decode(), count=1)
            shown = f"{self._text(left)} {old} {self._text(right)}", f"{self._text(left)} {new} {self._text(right)}"
            yield self._change("and, or", gap, text, shown)
        for position, value in enumerate(node.values):
            rest = [f"({self._text(each)})" for each in (*node.values[:position], *node.values[position + 1 :])]
            yield self._change(
                "clause left out", self._span(node), f"({f' {old} '.join(rest)})", (self._text(value), "nothing")
            )

    def _constants(self, node: ast.Constant) -> Iterator[Change]:
        value, span, text = node.value, self._span(node), self._text(node)
        if isinstance(value, bool):
            yield self._change("constant", span, str(not value))
        elif isinstance(value, int | float):
            for number in (value + 1, value - 1):
                yield self._change("constant", span, f"({number})", (str(value), str(number)))
        elif isinstance(value, str) and EXPRESSION.search(value):
            for old, new in IN_EXPRESSIONS.items():
                for found in re.finditer(re.escape(old), text):
                    before, after = text[: found.start()], text[found.end() :]
                    start = span[0] + len(before.encode())
                    shown = text, before + new + after
                    yield self._change("expression", (start, start + len(old.encode())), new, shown)

    def _call(self, node: ast.Call) -> Iterator[Change]:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in OTHER_CALL:
            other = OTHER_CALL[name]
            yield self._change("another call", self._span(node.func), other, (self._text(node), f"{other}(...)"))
        for left, right in zip(node.args, node.args[1:], strict=False):
            if name != "isinstance" and isinstance(left, ALIKE) and isinstance(right, ALIKE):
                span = self._span(left)[0], self._span(right)[1]
                between = self._raw[self._span(left)[1] : self._span(right)[0]].decode()
                yield self._change("arguments swapped", span, f"{self._text(right)}{between}{self._text(left)}")
        if name == "replace":
            yield from self._without_keywords(node)

    def _without_keywords(self, node: ast.Call) -> Iterator[Change]:
        parts = [self._text(each) for each in (*node.args, *node.keywords)]
        for position in range(len(node.args), len(parts)):
            rest = ", ".join(parts[:position] + parts[position + 1 :])
            yield self._change("attribute kept", self._span(node), f"replace({rest})", (parts[position], "nothing"))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
