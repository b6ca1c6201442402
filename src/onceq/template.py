"""`template.yaml` read for a local run: its resources' properties and its functions' environment, resolved.

The template is the one source of truth, so nothing here has a default of its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from onceq.errors import ConfigurationError
from onceq.intrinsics import NO_VALUE, suggestion, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from onceq.intrinsics import Template

FUNCTION_TYPES = ("AWS::Serverless::Function", "AWS::Lambda::Function")


def load_template(path: str | Path) -> Template:
    """Read a template.

    Args:
        path: The YAML file.

    Returns:
        The template, its tags (``!Ref``, ``!GetAtt``, ``!Sub``, ...) written out as CloudFormation's long forms.

    Raises:
        ConfigurationError: If it cannot be read, or is not a template; or if there is no PyYAML.
    """
    try:
        import yaml  # noqa: PLC0415 - the functions' artefact has no PyYAML
    except ModuleNotFoundError as error:
        message = f"{path} cannot be read without PyYAML: are the local requirements installed (onceq's extra [local])?"
        raise ConfigurationError(message) from error

    # The same one in C is five times faster, where PyYAML has it.
    safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(safe):  # type: ignore[misc]  # which one is known only here
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
    Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: str(loader.construct_scalar(node)))
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


def functions_of(template: Template) -> dict[str, dict[str, Any]]:
    """Return the properties of the template's functions, unresolved, by logical id."""
    return {
        name: resource.get("Properties") or {}
        for name, resource in template["Resources"].items()
        if isinstance(resource, dict) and resource.get("Type") in FUNCTION_TYPES
    }


def function_property(template: Template, function: str, name: str, default: Any = None) -> Any:
    """Return a property of a function, its own or of ``Globals``, unresolved."""
    return functions_of(template)[function].get(name, _shared(template).get(name, default))


def _shared(template: Template) -> dict[str, Any]:
    shared: dict[str, Any] = (template.get("Globals") or {}).get("Function") or {}
    return shared


def declared_environment(template: Template, function: str) -> dict[str, Any]:
    """Return a function's environment variables as the template declares them, ``Globals`` too, unresolved.

    Raises:
        ConfigurationError: If the template has no such function.
    """
    functions = functions_of(template)
    if function not in functions:
        message = f"the template has no function {function!r}{suggestion(function, functions)}"
        raise ConfigurationError(message)
    variables: dict[str, Any] = {}
    for properties in (_shared(template), functions[function]):
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
    functions = functions_of(template)
    everywhere = {name for each in functions for name in declared_environment(template, each)}
    for section, values in env_json.items():
        if section != "Parameters" and section not in functions:
            message = f"env.json: {section!r} is no function of the template{suggestion(section, functions)}"
            raise ConfigurationError(message)
        if not isinstance(values, dict):
            message = f"env.json: {section} must hold an object of variables"
            raise ConfigurationError(message)
        declared = everywhere if section == "Parameters" else set(declared_environment(template, section))
        for name in values:
            if name not in declared:
                message = (
                    f"env.json: the template does not declare {name!r}, so Lambda and SAM would not pass it"
                    f"{suggestion(name, declared)}"
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
