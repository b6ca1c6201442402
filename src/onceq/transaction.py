"""A job's own DynamoDB writes, staged while it runs and committed together with its completion.

What DynamoDB would refuse is refused where it is staged, by name: more than 100 items, more than 4 MB, two writes to
one item, an item of more than 400 KB
(https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html).
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from onceq.codec import printable
from onceq.errors import ConditionNotMet, TransactionFailed, TransactionRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

OnConflict = Literal["retry", "reject"]
MOST_ITEMS = 100
MOST_BYTES = 4 * 1_048_576
MOST_ITEM_BYTES = 409_600
# What each kind of write must say.
_NEEDED = {
    "Put": ("Item",),
    "Update": ("Key", "UpdateExpression"),
    "Delete": ("Key",),
    "ConditionCheck": ("Key", "ConditionExpression"),
}
# A document path in a condition: not a value (``:v``), and not a function's name.
_PATH = re.compile(r"(?<![\w:#.])((?:#[\w-]+|[A-Za-z_][\w-]*)(?:\[\d+\]|\.#?\w[\w-]*)*)(?!\s*\()(?![\w.\[])")
_PART = re.compile(r"#?[\w-]+")
_SETS = ("SS", "NS", "BS")


@dataclass(frozen=True, slots=True)
class Write:
    """One staged write.

    Args:
        kind: ``Put``, ``Update``, ``Delete`` or ``ConditionCheck``.
        request: Its parameters in TransactWriteItems' shape.
        on_conflict: What a condition that does not hold means to the job.
        key_names: The attributes that are the item's key, where they are known.
    """

    kind: str
    request: Mapping[str, Any]
    on_conflict: OnConflict
    key_names: frozenset[str] = frozenset()

    @property
    def table(self) -> str:
        """The table that it writes; DynamoDB takes an ARN for its name, too."""
        return str(self.request["TableName"]).rsplit("/", 1)[-1]

    @property
    def key(self) -> Mapping[str, Any]:
        """What names its item: the key, or the whole item of a put."""
        key: Mapping[str, Any] = self.request["Key"] if "Key" in self.request else self.request["Item"]
        return key

    def to_item(self) -> dict[str, Any]:
        """Return it as TransactWriteItems takes it, asking for the item that a failed condition met."""
        asked = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"} if "ConditionExpression" in self.request else {}
        return {self.kind: {**asked, **self.request}}

    def seen(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return what of an item the condition speaks about; the rest is nobody's business in a log."""
        names = self.request.get("ExpressionAttributeNames") or {}
        found = {}
        for path in _PATH.findall(str(self.request.get("ConditionExpression", ""))):
            parts = [names.get(part, part) for part in _PART.findall(path)]
            value = _at(item, parts)
            if value is not None:
                found[".".join(parts)] = value
        return found

    def __str__(self) -> str:
        """Name it for a person: by its key, as far as that is known."""
        if self.key_names:
            shown = {name: _shown(value) for name, value in self.key.items() if name in self.key_names}
        else:
            shown = self.seen(self.key)
        return f"{self.kind} of {self.table} {printable(shown, 200)}" if shown else f"{self.kind} of {self.table}"


class Transaction:
    """Writes that happen together with the job's completion, or not at all.

    Example:
        >>> transaction = Transaction()
        >>> transaction.write({"Delete": {"TableName": "Carts", "Key": {"id": {"S": "c-1"}}}})
        >>> [str(write) for write in transaction.writes]
        ["Delete of Carts {'id': 'c-1'}"]
    """

    def __init__(
        self, writes: Iterable[Mapping[str, Any]] = (), *, reserved: Iterable[str] = (), of_a_job: bool = False
    ) -> None:
        """Start with room for the one write that the framework adds.

        Args:
            writes: Writes as `write` takes them.
            reserved: Tables that are not the job's to write.
            of_a_job: Whether it is committed with a job's completion, and so with nothing else.
        """
        self.writes: list[Write] = []
        self.of_a_job = of_a_job
        # Of a job: refuses what a later attempt would not stage again.
        self.check_staging: Callable[[str], object] = lambda _what: None
        self._models: list[Any] = []
        self._reserved = frozenset(name.rsplit("/", 1)[-1] for name in reserved) - {""}
        self._is_over = False
        # The record of the job, or the message, that is written along.
        self._items = 1
        self._bytes = MOST_ITEM_BYTES
        for one in writes:
            self.write(one)

    def save(self, model: Any, condition: Any = None, *, on_conflict: OnConflict = "retry") -> None:
        """Stage the whole item of a pynamodb model; its version attribute is checked as by ``model.save``.

        Args:
            model: The model.
            condition: A pynamodb condition that must hold.
            on_conflict: ``"retry"`` runs the job again when it does not, ``"reject"`` ends the job for good.

        Raises:
            TransactionRefused: If the transaction would be refused with it.
        """
        self._stage_model(model, "Put", model.get_save_kwargs_from_instance(condition=condition), on_conflict)

    def update(
        self, model: Any, actions: Sequence[Any], condition: Any = None, *, on_conflict: OnConflict = "retry"
    ) -> None:
        """Stage update actions on the item of a pynamodb model.

        Args:
            model: The model.
            actions: pynamodb actions, as ``Stock.left.set(Stock.left - 1)``.
            condition: A pynamodb condition that must hold.
            on_conflict: ``"retry"`` runs the job again when it does not, ``"reject"`` ends the job for good.

        Raises:
            TransactionRefused: If the transaction would be refused with it.
        """
        request = model.get_update_kwargs_from_instance(actions=list(actions), condition=condition)
        self._stage_model(model, "Update", request, on_conflict)

    def delete(self, model: Any, condition: Any = None, *, on_conflict: OnConflict = "retry") -> None:
        """Stage the deletion of a pynamodb model's item; the arguments are those of `save`."""
        self._stage_model(model, "Delete", model.get_delete_kwargs_from_instance(condition=condition), on_conflict)

    def check(self, model: Any, condition: Any, *, on_conflict: OnConflict = "retry") -> None:
        """Stage a condition on the item of a pynamodb model, which is not written; arguments as for `save`."""
        request = model.get_delete_kwargs_from_instance(condition=condition, add_version_condition=False)
        self._stage(_write_of({"ConditionCheck": request}, on_conflict))

    def write(self, request: Mapping[str, Any], *, on_conflict: OnConflict = "retry") -> None:
        """Stage one write as TransactWriteItems takes it.

        Args:
            request: ``{"Put": {…}}``, ``{"Update": {…}}``, ``{"Delete": {…}}`` or ``{"ConditionCheck": {…}}``, values
                in DynamoDB's own shape.
            on_conflict: ``"retry"`` runs the job again when its condition does not hold, ``"reject"`` ends it for good.

        Raises:
            TransactionRefused: If the transaction would be refused with it.
        """
        self._stage(_write_of(request, on_conflict))

    def close(self) -> None:
        """Take nothing more: what was staged is being committed, or never will be."""
        self._is_over = True

    def check_open(self, what: str) -> None:
        """Refuse what comes too late, and what a later attempt would not stage again. Raises: TransactionRefused."""
        if self._is_over:
            message = f"{what}: the attempt that this context belongs to is over"
            raise TransactionRefused(message)
        self.check_staging(what)

    def _stage(self, write: Write) -> None:
        self.check_open(str(write))
        if write.table in self._reserved:
            message = f"{write}: the framework's own tables are not the job's to write"
            raise TransactionRefused(message)
        for other in self.writes:
            if other.table == write.table and _is_same_item(other, write, self._key_names(write.table, write)):
                message = f"{write}: {other} is in the transaction already, and DynamoDB takes one write to an item"
                raise TransactionRefused(message)
        size = size_of(write.request.get("Item") or write.request.get("ExpressionAttributeValues") or {})
        if size > MOST_ITEM_BYTES:
            message = f"{write}: {size} bytes, and an item has at most {MOST_ITEM_BYTES}"
            raise TransactionRefused(message)
        self.reserve(str(write), size)
        self.writes.append(write)

    def reserve(self, what: str, size: int) -> None:
        """Take the room of one item.

        Raises:
            TransactionRefused: If there is none.
        """
        if self._items + 1 > MOST_ITEMS:
            message = f"{what}: it would be item {self._items + 1} of the transaction, and DynamoDB takes {MOST_ITEMS}"
            raise TransactionRefused(message)
        if self._bytes + size > MOST_BYTES:
            message = f"{what}: the transaction would have {self._bytes + size} bytes, and DynamoDB takes {MOST_BYTES}"
            raise TransactionRefused(message)
        self._items += 1
        self._bytes += size

    def committed(self) -> None:
        """Tell the models that they were written: their version attribute is then the next one."""
        for model in self._models:
            model.update_local_version_attribute()

    def failure(self, reasons: Sequence[Mapping[str, Any]]) -> TransactionFailed:
        """Return what DynamoDB's reasons, in the order of `writes`, mean.

        Args:
            reasons: The reason for each write.

        Returns:
            The error that names the first write whose condition did not hold, or that was refused.
        """
        for write, reason in zip(self.writes, reasons, strict=False):
            code = reason.get("Code")
            if code == "ConditionalCheckFailed":
                item = reason.get("Item") or None
                message = f"{write}: its condition did not hold: {_met(write, item)}"
                return ConditionNotMet(message, write=str(write), item=item, rejects=write.on_conflict == "reject")
        for write, reason in zip(self.writes, reasons, strict=False):
            if reason.get("Code") not in (None, "None"):
                return TransactionRefused(f"{write}: {reason.get('Code')}: {printable(reason.get('Message'), 300)}")
        codes = ", ".join(str(reason.get("Code")) for reason in reasons)
        return TransactionRefused(f"DynamoDB refused the transaction: {printable(codes, 300)}")

    def _stage_model(self, model: Any, kind: str, request: Mapping[str, Any], on_conflict: OnConflict) -> None:
        key = model.get_delete_kwargs_from_instance(add_version_condition=False)["Key"]
        self._stage(replace(_write_of({kind: request}, on_conflict), key_names=frozenset(key)))
        if kind != "Delete":
            self._models.append(model)

    def _key_names(self, table: str, write: Write) -> frozenset[str]:
        """Return the attributes that are the table's key, as far as any write of the transaction tells."""
        told = (other.key_names for other in (write, *self.writes) if other.table == table and other.key_names)
        return next(told, frozenset())


def _write_of(request: Mapping[str, Any], on_conflict: OnConflict) -> Write:
    kinds = ", ".join(_NEEDED)
    if not isinstance(request, dict) or len(request) != 1 or next(iter(request)) not in _NEEDED:
        given = sorted(map(str, request)) if isinstance(request, dict) else type(request).__name__
        message = f"a write of a transaction is one of {kinds} with its parameters, not {printable(given, 200)}"
        raise TransactionRefused(message)
    ((kind, parameters),) = request.items()
    if on_conflict not in ("retry", "reject"):
        message = f'on_conflict={on_conflict!r}: give "retry" or "reject"'
        raise TransactionRefused(message)
    needed = ("TableName", *_NEEDED[kind])
    missing = [name for name in needed if not isinstance(parameters, dict) or not parameters.get(name)]
    if missing:
        message = f"a {kind} of a transaction needs {', '.join(needed)}: {', '.join(missing)} is missing"
        raise TransactionRefused(message)
    for name in ("Key", "Item", "ExpressionAttributeValues"):
        if name in parameters and not _is_shaped(parameters[name]):
            message = f'the {name} of a {kind} is in DynamoDB\'s own shape, as {{"sku": {{"S": "s-1"}}}}'
            raise TransactionRefused(message)
    # A copy: what the caller does with its own afterwards is not what was staged.
    return Write(kind, copy.deepcopy(parameters), on_conflict, frozenset(parameters.get("Key", ())))


def _is_shaped(item: object) -> bool:
    return isinstance(item, dict) and all(_is_shaped_value(value) for value in item.values())


def _is_shaped_value(value: object) -> bool:
    if not isinstance(value, dict) or len(value) != 1:
        return False
    ((kind, inner),) = value.items()
    if kind == "M":
        return _is_shaped(inner)
    if kind == "L":
        return isinstance(inner, list | tuple) and all(_is_shaped_value(one) for one in inner)
    return isinstance(inner, list | tuple | set) if kind in _SETS else True


def _is_same_item(one: Write, other: Write, key_names: frozenset[str]) -> bool:
    if not key_names:
        return one.key == other.key  # two puts, and nobody said what the key is: DynamoDB finds the rest
    return all(one.key.get(name) == other.key.get(name) for name in key_names)


def size_of(item: Mapping[str, Any]) -> int:
    """Return about what DynamoDB counts of an item's attributes, in bytes.

    Example:
        >>> size_of({"sku": {"S": "s-1"}, "left": {"N": "12"}})
        12
    """
    return sum(len(name.encode()) + _size_of_value(value) for name, value in item.items())


def _size_of_value(value: Any) -> int:
    ((kind, inner),) = value.items()
    if kind == "M":
        return 3 + size_of(inner) + len(inner)
    if kind == "L":
        return 3 + sum(1 + _size_of_value(one) for one in inner)
    if kind in _SETS:
        return sum(len(one if isinstance(one, bytes) else str(one).encode()) for one in inner)
    return len(inner) if isinstance(inner, bytes | bytearray) else len(str(inner).encode())


def _at(item: Mapping[str, Any], parts: Sequence[str]) -> Any:
    """Return what stands at a document path, as a person may see it; ``None`` where there is nothing."""
    value: Any = {"M": item}
    for part in parts:
        if "M" in value:
            value = value["M"].get(part)
        elif "L" in value and part.isdigit() and int(part) < len(value["L"]):
            value = value["L"][int(part)]
        else:
            return None
        if value is None:
            return None
    return _shown(value)


def _shown(value: Mapping[str, Any]) -> Any:
    ((kind, inner),) = value.items()
    return inner if kind in ("S", "N", "BOOL") else f"a value of type {kind}"


def _met(write: Write, item: Mapping[str, Any] | None) -> str:
    if item is None:
        return "there was no item"
    shown = write.seen(item)
    return f"the item has {printable(shown, 400)}" if shown else "there was an item"
