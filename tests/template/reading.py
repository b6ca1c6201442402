"""Read template.yaml and samconfig.toml as CloudFormation and SAM would, as far as the tests need it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FUNCTION = "AWS::Serverless::Function"
_SHIPPED = """
JobsQueue DeadLetterQueue OnlyEncryptedConnections OnlyEncryptedConnectionsToDeadLetters
LedgerJobsQueue LedgerDeadLetterQueue OnlyEncryptedConnectionsToLedger OnlyEncryptedConnectionsToLedgerDeadLetters
PayloadBucket OnlyEncryptedConnectionsToPayloads ClaimsTable OutboxTable StockTable LedgerTable
JobsPolicy LedgerPolicy VpcPolicy ConsumerRole LedgerRole RelayRole RecoveryRole
ProducerPolicy OutboxProducerPolicy LookupPolicy LockPolicy ResolvePolicy
ConsumerLogGroup ConsumerFunction LedgerLogGroup LedgerFunction RelayLogGroup RelayFunction
RecoveryLogGroup RecoveryFunction NightlyReportSchedule NightlyReportRole
DeadLetterQueueNotEmptyAlarm OldestMessageAlarm ConsumerErrorsAlarm ConsumerThrottlesAlarm
NeedsAPersonFilter NeedsAPersonAlarm UncertainJobsFilter UncertainInRecoveryFilter UncertainJobsAlarm
OutboxOverdueFilter OutboxOverdueAlarm RelayErrorsAlarm RelayNotRunningAlarm RecoveryErrorsAlarm
StaleClaimsFilter StaleClaimsAlarm LedgerDeadLetterQueueNotEmptyAlarm LedgerOldestMessageAlarm LedgerErrorsAlarm
LedgerNeedsAPersonFilter LedgerUncertainJobsFilter Dashboard
"""
# Every resource of the template as it is shipped, the examples' too. What is not here the user has added.
SHIPPED = frozenset(_SHIPPED.split())


# The one in C, where PyYAML has it: ten times as fast.
_SafeLoader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):  # type: ignore[valid-type, misc]  # which of the two is known when it runs
    """Plain YAML, and CloudFormation's short tags in their long form."""


def _long_form(loader: _Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        assert isinstance(node, yaml.MappingNode)
        value = loader.construct_mapping(node, deep=True)
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {suffix if suffix in {"Ref", "Condition"} else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _long_form)


def load_template() -> dict[str, Any]:
    """Return the template with every tag in its long form."""
    template = yaml.load((ROOT / "template.yaml").read_text(), Loader=_Loader)  # noqa: S506 - a SafeLoader
    assert isinstance(template, dict)
    return template


def load_samconfig() -> dict[str, Any]:
    """Return samconfig.toml."""
    return tomllib.loads((ROOT / "samconfig.toml").read_text())


def overrides(environment: str) -> dict[str, str]:
    """Return the parameters that one section of samconfig.toml sets."""
    pairs = load_samconfig()[environment].get("deploy", {}).get("parameters", {}).get("parameter_overrides", [])
    return dict(pair.split("=", 1) for pair in pairs)


def _merged(shared: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Merge as SAM merges its Globals: maps by their keys, and of anything else the function's own."""
    merged = shared | own
    for name in shared.keys() & own.keys():
        if isinstance(shared[name], dict) and isinstance(own[name], dict):
            merged[name] = _merged(shared[name], own[name])
    return merged


@dataclass(frozen=True)
class Stack:
    """The template with one set of parameters."""

    template: dict[str, Any] = field(default_factory=load_template)
    given: dict[str, str] = field(default_factory=dict)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Every parameter's value, numbers as numbers."""
        declared = self.template["Parameters"]
        values = {name: self.given.get(name, declaration.get("Default", "")) for name, declaration in declared.items()}
        return {
            name: int(value) if declared[name]["Type"] == "Number" and value != "" else str(value)
            for name, value in values.items()
        }

    def declared(self, logical_id: str) -> dict[str, Any]:
        """Return a resource's properties as the template has them, a function's with what all functions share."""
        resource = self.template["Resources"][logical_id]
        shared = self.template["Globals"]["Function"] if resource["Type"] == FUNCTION else {}
        return _merged(shared, resource.get("Properties", {}))

    def properties(self, logical_id: str) -> dict[str, Any]:
        """Return a resource's properties, parameters and conditions resolved."""
        resolved = self.resolve(self.declared(logical_id))
        assert isinstance(resolved, dict)
        return resolved

    def of_type(self, resource_type: str) -> dict[str, dict[str, Any]]:
        """Return the resolved properties of every shipped resource of one type that these parameters make."""
        return {name: self.properties(name) for name in self._made(resource_type) if name in SHIPPED}

    def added(self, resource_type: str) -> dict[str, dict[str, Any]]:
        """Return the resolved properties of every resource of one type that the user has added."""
        return {name: self.properties(name) for name in self._made(resource_type) if name not in SHIPPED}

    def _made(self, resource_type: str) -> list[str]:
        resources = self.template["Resources"].items()
        return [name for name, resource in resources if resource["Type"] == resource_type and self.makes(name)]

    def has(self, logical_id: str) -> bool:
        """Return whether the template has a resource, which the user may have deleted."""
        return logical_id in self.template["Resources"]

    def makes(self, logical_id: str) -> bool:
        """Return whether these parameters make a resource."""
        condition = self.template["Resources"][logical_id].get("Condition")
        return condition is None or self.holds(condition)

    def resolve(self, value: Any) -> Any:
        """Resolve what the parameters decide; references to resources stay as they are."""
        if isinstance(value, list):
            return [one for one in map(self.resolve, value) if one != {"Ref": "AWS::NoValue"}]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            [(function, argument)] = value.items()
            if function == "Ref" and argument in self.parameters:
                return self.parameters[argument]
            if function == "Fn::If":
                return self.resolve(argument[1] if self.holds(argument[0]) else argument[2])
        resolved = {key: self.resolve(one) for key, one in value.items()}
        return {key: one for key, one in resolved.items() if one != {"Ref": "AWS::NoValue"}}

    def holds(self, condition: str) -> bool:
        """Return whether a condition holds."""
        return self._truth(self.template["Conditions"][condition])

    def broken_rules(self) -> set[str]:
        """Return the names of the rules that refuse these parameters."""
        return {
            name
            for name, rule in self.template["Rules"].items()
            if self._truth(rule["RuleCondition"])
            and not all(self._truth(assertion["Assert"]) for assertion in rule["Assertions"])
        }

    def _truth(self, expression: Any) -> bool:
        [(function, argument)] = expression.items()
        if function == "Fn::Not":
            return not self._truth(argument[0])
        if function == "Fn::Contains":
            return self._text(argument[1]) in argument[0]
        if function == "Fn::EachMemberEquals":
            return all(member == argument[1] for member in self._text(argument[0]).split(","))
        assert function == "Fn::Equals", f"teach this helper {function}"
        left, right = (self._text(one) for one in argument)
        return left == right

    def _text(self, value: Any) -> str:
        if isinstance(value, dict) and "Fn::Join" in value:
            separator, joined = value["Fn::Join"]
            return str(separator).join(str(self.resolve(joined)).split(","))
        return str(self.resolve(value))
