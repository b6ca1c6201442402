"""CloudFormation's intrinsic functions, resolved for a local run.

Understood is what the queues, the tables and the environment need; what is not is an error that names the place.
"""

from __future__ import annotations

import difflib
import math
import re
from typing import TYPE_CHECKING, Any, Never

from onceq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Template = dict[str, Any]

PSEUDO_PARAMETERS = {
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws",
    "AWS::Region": "us-east-1",
    "AWS::StackId": "arn:aws:cloudformation:us-east-1:123456789012:stack/local/0",
    "AWS::StackName": "local",
    "AWS::URLSuffix": "amazonaws.com",
}
_PLACEHOLDER = re.compile(r"\$\{(!?)([^${}]+)\}")


class _NoValue:
    """What ``AWS::NoValue`` stands for: the property is left out."""


NO_VALUE = _NoValue()


class Resolver:
    """Resolves intrinsic functions, with parameters and the attributes of resources that exist."""

    def __init__(
        self,
        template: Template,
        parameters: Mapping[str, object] | None = None,
        attribute: Callable[[str, str], str | None] = lambda _resource, _name: None,
    ) -> None:
        """Keep what is resolved against.

        Args:
            template: The template.
            parameters: Instead of the parameters' defaults.
            attribute: Returns an attribute of a resource (``Ref`` is one, by that name), or ``None``.

        Raises:
            ConfigurationError: If a parameter is unknown, or has a value that CloudFormation would refuse.
        """
        self._declared: dict[str, Any] = template.get("Parameters") or {}
        self._conditions: dict[str, Any] = template.get("Conditions") or {}
        self._mappings: dict[str, Any] = template.get("Mappings") or {}
        self._attribute = attribute
        self._given = dict(parameters or {})
        for name, value in self._given.items():
            if name not in self._declared:
                message = f"the template has no parameter {name!r}{suggestion(name, self._declared)}"
                raise ConfigurationError(message)
            wanted = _wanted(self._declared[name], value)
            if wanted:
                message = f"parameter {name}={text_of(value)!r}: give {wanted}"
                raise ConfigurationError(message)

    def resolve(self, value: Any, path: str) -> Any:
        """Return a value with its intrinsic functions resolved.

        Args:
            value: Any part of the template.
            path: Where it stands, for errors.

        Raises:
            ConfigurationError: If something in it cannot be resolved here.
        """
        if isinstance(value, list):
            items = [self.resolve(item, f"{path}[{number}]") for number, item in enumerate(value)]
            return [item for item in items if item is not NO_VALUE]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((name, argument),) = value.items()
            if name in ("Ref", "Condition") or str(name).startswith("Fn::"):
                return self._call(str(name).removeprefix("Fn::"), argument, f"{path}.{name}")
        resolved = {name: self.resolve(item, f"{path}.{name}") for name, item in value.items()}
        return {name: item for name, item in resolved.items() if item is not NO_VALUE}

    def condition(self, name: str, path: str) -> bool:
        """Say whether a condition holds.

        Raises:
            ConfigurationError: If it is unknown, or cannot be evaluated here.
        """
        if name not in self._conditions:
            message = f"{path}: the template has no condition {name!r}"
            raise ConfigurationError(message)
        return bool(self.resolve(self._conditions[name], f"Conditions.{name}"))

    def _call(self, name: str, argument: Any, path: str) -> Any:
        match name, argument:
            case "Ref", str():
                return self._ref(argument, path)
            case "Condition", str():
                return self.condition(argument, path)
            case "GetAtt", [str() as resource, str() as attribute]:
                return self._attribute_of(resource, attribute, path)
            case "GetAtt", str() if "." in argument:
                return self._call(name, argument.split(".", 1), path)
            case "Sub", str():
                return self._sub(argument, {}, path)
            case "Sub", [str() as text, dict() as variables]:
                return self._sub(text, self.resolve(variables, path), path)
            case "If", [str() as condition, then, otherwise]:
                return self.resolve(then if self.condition(condition, path) else otherwise, path)
            case (("And" | "Or" | "Not" | "Equals" | "Join" | "Split" | "Select" | "FindInMap"), list()):
                return self._calculate(name, [self.resolve(operand, path) for operand in argument], argument, path)
            case _:
                return self._unknown(name, argument, path)

    def _calculate(self, name: str, operands: list[Any], argument: Any, path: str) -> Any:
        match name, operands:
            case "Not", [operand]:
                return not operand
            case "And", _:
                return all(operands)
            case "Or", _:
                return any(operands)
            case "Equals", [left, right]:
                return text_of(left) == text_of(right)
            case "Join", [separator, list() as items]:
                return text_of(separator).join(text_of(item) for item in items)
            case "Split", [separator, text]:
                return text_of(text).split(text_of(separator))
            case "Select", [index, list() as items] if text_of(index).isdigit() and int(index) < len(items):
                return items[int(index)]
            case "FindInMap", [table, first, second]:
                value = ((self._mappings.get(table) or {}).get(first) or {}).get(second)
                return self._unknown(name, argument, path) if value is None else value
            case _:
                return self._unknown(name, argument, path)

    def _unknown(self, name: str, argument: Any, path: str) -> Never:
        message = f"{path}: {name} of {argument!r} cannot be resolved for a local run"
        raise ConfigurationError(message)

    def _ref(self, name: str, path: str) -> Any:
        if name == "AWS::NoValue":
            return NO_VALUE
        if name in PSEUDO_PARAMETERS:
            return PSEUDO_PARAMETERS[name]
        if name in self._declared:
            return self._parameter(name, path)
        return self._attribute_of(name, "Ref", path)

    def _parameter(self, name: str, path: str) -> Any:
        declared = self._declared[name]
        value = self._given.get(name, declared.get("Default"))
        if value is None:
            message = f"{path}: parameter {name} has no default, so a local run must give it"
            raise ConfigurationError(message)
        return str(value).split(",") if _is_list(declared) and not isinstance(value, list) else value

    def _attribute_of(self, resource: str, attribute: str, path: str) -> str:
        value = self._attribute(resource, attribute)
        if value is None:
            what = f"{resource}.{attribute}" if attribute != "Ref" else resource
            message = f"{path}: {what} does not exist in a local run, which has the queues, tables and buckets only"
            raise ConfigurationError(message)
        return value

    def _sub(self, text: str, variables: Mapping[str, Any], path: str) -> str:
        def replace(found: re.Match[str]) -> str:
            literal, name = found.groups()
            if literal:
                return f"${{{name}}}"
            name = name.strip()
            if name in variables:
                return text_of(variables[name])
            if "." in name:
                resource, attribute = name.split(".", 1)
                return self._attribute_of(resource, attribute, path)
            return text_of(self._ref(name, path))

        return _PLACEHOLDER.sub(replace, text)


def _is_list(declared: Mapping[str, Any]) -> bool:
    return declared.get("Type") == "CommaDelimitedList" or str(declared.get("Type")).startswith("List<")


def _wanted(declared: Mapping[str, Any], value: object) -> str:
    """Return what a parameter takes, if it does not take this value.

    https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/parameters-section-structure.html
    """
    given = value if isinstance(value, list) else [value]
    texts = [text for one in given for text in (text_of(one).split(",") if _is_list(declared) else [text_of(one)])]
    allowed = [text_of(one) for one in declared.get("AllowedValues") or []]
    if allowed and not set(texts) <= set(allowed):
        return f"one of {', '.join(allowed)}"
    pattern = declared.get("AllowedPattern")
    if pattern is not None and not all(re.fullmatch(pattern, text) for text in texts):
        return f"what the pattern {pattern} takes"
    is_number = "Number" in str(declared.get("Type"))
    kind, least, most = ("a number", "MinValue", "MaxValue") if is_number else ("a length", "MinLength", "MaxLength")
    low, high = (float(declared.get(name, end)) for name, end in ((least, -math.inf), (most, math.inf)))
    try:
        sizes = [float(text) if is_number else len(text) for text in texts]
    except ValueError:
        return kind
    if all(math.isfinite(size) and low <= size <= high for size in sizes):
        return ""
    limits = ((name, declared.get(end)) for name, end in (("from", least), ("to", most)))
    return " ".join([kind, *(f"{name} {limit}" for name, limit in limits if limit is not None)])


def text_of(value: Any) -> str:
    """Return a plain value as CloudFormation writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a question that names what is near to a name that is not known, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f". Did you mean {near[0]!r}?" if near else ""
