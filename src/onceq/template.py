"""`template.yaml` read for a local run: its resources' properties and its functions' environment, resolved.

The template is the one source of truth, so nothing here has a default of its own. Understood is what the queues, the
tables and the environment need; what is not is an error that names the place.
"""

from __future__ import annotations

import difflib
import os
import re
from typing import TYPE_CHECKING, Any, Never

from onceq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Template = dict[str, Any]

PSEUDO_PARAMETERS = {
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws",
    "AWS::Region": "us-east-1",
    "AWS::StackId": "arn:aws:cloudformation:us-east-1:123456789012:stack/local/0",
    "AWS::StackName": "local",
    "AWS::URLSuffix": "amazonaws.com",
}
FUNCTION_TYPES = ("AWS::Serverless::Function", "AWS::Lambda::Function")
_PLACEHOLDER = re.compile(r"\$\{(!?)([^${}]+)\}")


class _NoValue:
    """What ``AWS::NoValue`` stands for: the property is left out."""


NO_VALUE = _NoValue()


def load_template(path: str | Path) -> Template:
    """Read a template.

    Args:
        path: The YAML file.

    Returns:
        The template, its tags (``!Ref``, ``!GetAtt``, ``!Sub``, ...) written out as CloudFormation's long forms.

    Raises:
        ConfigurationError: If it cannot be read, or is not a template.
    """
    import yaml  # noqa: PLC0415 - the functions' artefact has no PyYAML

    class Loader(yaml.SafeLoader):
        """Knows CloudFormation's tags."""

    def construct(loader: Any, suffix: str, node: Any) -> dict[str, Any]:
        value: Any
        if isinstance(node, yaml.ScalarNode):
            text = str(loader.construct_scalar(node))
            value = text.split(".", 1) if suffix == "GetAtt" else text
        elif isinstance(node, yaml.SequenceNode):
            value = loader.construct_sequence(node, deep=True)
        else:
            value = loader.construct_mapping(node, deep=True)
        return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}

    Loader.add_multi_constructor("!", construct)
    # CloudFormation reads dates as text: "2012-10-17" is a version.
    Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: str(loader.construct_scalar(node)))  # type: ignore[arg-type]  # a timestamp is a scalar
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - takes a string as well
            template = yaml.load(file, Loader)  # noqa: S506 - the loader is a safe one
    except (OSError, yaml.YAMLError) as error:
        message = f"{path} cannot be read: {error}"
        raise ConfigurationError(message) from error
    if not isinstance(template, dict) or not isinstance(template.get("Resources"), dict):
        message = f"{path} is not a template: it has no Resources"
        raise ConfigurationError(message)
    return template


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
            ConfigurationError: If a parameter is unknown.
        """
        self._declared: dict[str, Any] = template.get("Parameters") or {}
        self._conditions: dict[str, Any] = template.get("Conditions") or {}
        self._mappings: dict[str, Any] = template.get("Mappings") or {}
        self._attribute = attribute
        self._given = dict(parameters or {})
        for name in self._given:
            if name not in self._declared:
                message = f"the template has no parameter {name!r}{_suggestion(name, self._declared)}"
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
        is_list = declared.get("Type") == "CommaDelimitedList" or str(declared.get("Type")).startswith("List<")
        return str(value).split(",") if is_list and not isinstance(value, list) else value

    def _attribute_of(self, resource: str, attribute: str, path: str) -> str:
        value = self._attribute(resource, attribute)
        if value is None:
            what = f"{resource}.{attribute}" if attribute != "Ref" else resource
            message = f"{path}: {what} does not exist in a local run, which has the queues and tables only"
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


def declared_environment(template: Template, function: str) -> dict[str, Any]:
    """Return a function's environment variables as the template declares them, ``Globals`` too, unresolved.

    Raises:
        ConfigurationError: If the template has no such function.
    """
    functions = {
        name: resource
        for name, resource in template["Resources"].items()
        if isinstance(resource, dict) and resource.get("Type") in FUNCTION_TYPES
    }
    if function not in functions:
        message = f"the template has no function {function!r}{_suggestion(function, functions)}"
        raise ConfigurationError(message)
    variables: dict[str, Any] = {}
    shared = (template.get("Globals") or {}).get("Function") or {}
    for properties in (shared, functions[function].get("Properties") or {}):
        variables |= (properties.get("Environment") or {}).get("Variables") or {}
    return variables


def function_environment(
    template: Template,
    resources: Any,
    *,
    function: str = "ConsumerFunction",
    env_json: Mapping[str, Any] | None = None,
    shell: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return a function's environment for a local run, by SAM's rules.

    Only declared variables are passed. A value comes from ``env_json``'s entry of the function, then from its
    ``Parameters``, then from the shell, then from the template
    (https://docs.aws.amazon.com/serverless-application-model/latest/developerguide/serverless-sam-cli-using-invoke.html).

    Args:
        template: The template.
        resources: What `onceq.resources.create_resources` returned.
        function: Logical id of the function.
        env_json: What stands in SAM's ``env.json``.
        shell: Variables of the shell; without it this process's environment.

    Returns:
        The variables, as text.

    Raises:
        ConfigurationError: If a value cannot be resolved, or ``env_json`` has a name that the template does not
            declare: SAM drops such a one in silence.
    """
    declared = declared_environment(template, function)
    overrides = _overrides(template, function, env_json or {})
    shell = os.environ if shell is None else shell
    environment = {}
    for name, value in declared.items():
        path = f"Resources.{function}.Properties.Environment.Variables.{name}"
        if name in overrides:
            environment[name] = _variable(overrides[name], f"env.json: {name}")
        elif name in shell:
            environment[name] = shell[name]
        else:
            try:
                environment[name] = _variable(resources.resolver.resolve(value, path), path)
            except ConfigurationError as error:
                message = f"{error}; give {name} in env.json"
                raise ConfigurationError(message) from error
    return environment


def _overrides(template: Template, function: str, env_json: Mapping[str, Any]) -> dict[str, Any]:
    functions = [
        name for name, resource in template["Resources"].items() if (resource or {}).get("Type") in FUNCTION_TYPES
    ]
    everywhere = {name for each in functions for name in declared_environment(template, each)}
    for section, values in env_json.items():
        if section != "Parameters" and section not in functions:
            message = f"env.json: {section!r} is no function of the template{_suggestion(section, functions)}"
            raise ConfigurationError(message)
        if not isinstance(values, dict):
            message = f"env.json: {section} must hold an object of variables"
            raise ConfigurationError(message)
        declared = everywhere if section == "Parameters" else set(declared_environment(template, section))
        for name in values:
            if name not in declared:
                message = (
                    f"env.json: the template does not declare {name!r}, so Lambda and SAM would not pass it"
                    f"{_suggestion(name, declared)}"
                )
                raise ConfigurationError(message)
    return {**env_json.get("Parameters", {}), **env_json.get(function, {})}


def _variable(value: Any, path: str) -> str:
    if isinstance(value, list | dict) or value is NO_VALUE:
        message = f"{path}: an environment variable is text, not {type(value).__name__}"
        raise ConfigurationError(message)
    return text_of(value)


def parameter_of(template: Template, value: Any) -> str:
    """Return the parameter that a value is a ``Ref`` to, or nothing."""
    name = value.get("Ref") if isinstance(value, dict) else None
    return name if isinstance(name, str) and name in (template.get("Parameters") or {}) else ""


def text_of(value: Any) -> str:
    """Return a plain value as CloudFormation writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _suggestion(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f". Did you mean {near[0]!r}?" if near else ""
