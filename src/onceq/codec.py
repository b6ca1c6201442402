"""JSON in and out: payloads, results, fingerprints. One codec, on msgspec.

What msgspec knows is known here: dataclasses, ``TypedDict``, ``Struct``, datetime, UUID, Decimal, Enum, bytes, sets.
pydantic models, and Powertools' event source data classes, are served where the user has imported them; neither is
imported from here.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import sys
from dataclasses import dataclass
from typing import Any

import msgspec
import msgspec.inspect

from onceq.errors import NotJson, PayloadError

# Deeper values are read or not by how deep the reader's own stack is: a result could be stored and never be replayed.
MOST_LEVELS = 200
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_MARKS = bytes(set(range(256)) - {*_STEP, ord('"')})
PIECE = 8_192
# How msgspec may write a float that has no fraction; in a string it only costs a second look.
_FLOAT = re.compile(r"\d(?:\.0|e)")
# msgspec quotes the value that does not fit; a reason is logged, and a payload is not.
_QUOTED_VALUE = re.compile(r"(Invalid (?:enum )?value) .*(?= - at `)|(Invalid (?:enum )?value) .*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ResultNotStored:
    """Stands for a result that could not be stored; the job is completed all the same.

    Both the first run and every replay are answered with it (guarantee G10), so nobody depends on a value that
    the next duplicate will not get.

    Args:
        reason: Why the result was not stored.

    Example:
        >>> encode_result("x" * 100, 32).reason
        'too large: 102 bytes, and at most 32 are stored'
    """

    reason: str


def encode(value: object) -> str:
    """Return a value as JSON text.

    Args:
        value: What msgspec or pydantic can write. Sets and mappings come out sorted, so equal values are equal text.

    Returns:
        The text.

    Raises:
        PayloadError: If the value cannot be encoded. NaN and the infinities cannot: JSON has no word for them, and
            msgspec would write ``null``.

    Example:
        >>> encode({"paid": True, "amount": 5})
        '{"amount":5,"paid":true}'
    """
    try:
        data = _encoded(value)
        # msgspec writes NaN as null (its own rule for JSON), so only text with a null in it needs the slow look.
        if b"null" in data and _has_nonfinite(msgspec.to_builtins(value, enc_hook=_encode_other, str_keys=True)):
            message = "NaN and the infinities are not JSON: send None or a string instead"
            raise PayloadError(message)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise PayloadError(_reason(f"{type(value).__name__} values cannot be written as JSON", error)) from error
    return data.decode()


def decode(text: str | bytes) -> Any:
    """Return the value that JSON text stands for.

    Raises:
        PayloadError: If the text is not JSON (`NotJson`), holds what Python cannot (a lone surrogate, a number out of
            range), or is nested more than 200 levels deep.

    Example:
        >>> decode('{"amount": 5}')
        {'amount': 5}
    """
    try:
        value = _decoder.decode(text)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        kind = NotJson if isinstance(error, msgspec.DecodeError) else PayloadError
        raise kind(_reason("not JSON", error)) from error
    data = text.encode() if isinstance(text, str) else text
    if data.count(b"[") + data.count(b"{") > MOST_LEVELS:
        _check_depth(data)
    return value


def fit(value: object, type_: Any) -> Any:
    """Return a decoded JSON value as the type that a job type declares.

    Args:
        value: Decoded JSON.
        type_: ``dict``, a dataclass, a ``TypedDict``, a msgspec ``Struct``, a pydantic model, ``Any``, ...

    Returns:
        The typed value.

    Raises:
        PayloadError: If it does not fit, with the path of what is wrong.
    """
    if type_ is Any or type_ is object:
        return value
    try:
        if _is_pydantic(type_):
            return type_.model_validate(value)
        if _is_data_class(type_):
            return type_(msgspec.convert(value, dict))
        return msgspec.convert(value, type_, dec_hook=_decode_other, str_keys=True)
    except RecursionError as error:
        raise PayloadError(_reason("the payload is nested too deeply", error)) from error
    except Exception as error:  # a payload's own __post_init__ or validator may raise anything
        message = f"the payload does not fit: {_without_values(error)}"
        raise PayloadError(printable(message)) from error


def fits_json(type_: Any) -> bool:
    """Return whether decoded JSON can become a value of this type at all."""
    if type_ is Any or type_ is object or _is_pydantic(type_) or _is_data_class(type_):
        return True
    try:
        return not isinstance(msgspec.inspect.type_info(type_), msgspec.inspect.CustomType)
    except Exception:  # noqa: BLE001 - a type that msgspec cannot describe is judged by the first payload
        return True


def fingerprint(value: object) -> str:
    """Return the payload fingerprint: SHA-256 over one canonical form.

    Mappings are sorted, and ``1.0`` is ``1``, since not every producer's JSON tells them apart.

    Raises:
        PayloadError: If the value cannot be encoded.

    Example:
        >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2.0, "a": 1})
        True
    """
    text = encode(value)
    if _FLOAT.search(text):
        text = encode(_integral(decode(text)))
    return hashlib.sha256(text.encode()).hexdigest()


def encode_result(value: object, limit: int) -> str | ResultNotStored:
    """Return a job's result as the text to store, or why it cannot be stored.

    Never raises: the effect has happened, so the job must be recorded whatever the result is (guarantee G10).

    Args:
        value: What the job returned.
        limit: The largest text that is stored, in bytes.

    Returns:
        The text, or a `ResultNotStored`.
    """
    try:
        text = encode(value)
        decode(text)
    except BaseException as error:  # noqa: BLE001 - the code of a user's own result may raise anything, SystemExit too
        return ResultNotStored(_reason("not encodable", error))
    size = len(text.encode())
    if size > limit:
        return ResultNotStored(f"too large: {size} bytes, and at most {limit} are stored")
    return text


def decode_result(text: str | None, not_stored: str | None) -> Any:
    """Return a stored result: the same value for the first run and for every replay, and never an error.

    Args:
        text: The stored text, if there is one.
        not_stored: Why there is none, if that is known.

    Returns:
        The value, or a `ResultNotStored`.
    """
    if not_stored is not None:
        return ResultNotStored(not_stored)
    try:
        return None if text is None else decode(text)
    except PayloadError as error:
        return ResultNotStored(str(error))  # written by a release that took more than this one


def printable(text: object, limit: int = 1000) -> str:
    """Return text that DynamoDB, SQS and a log line accept: bounded, without control characters or lone surrogates."""
    # Cut first: cleaning tens of megabytes takes seconds, in which no other job gets a turn.
    clean = str(text)[: limit + 1].encode("utf-8", "replace").decode()
    clean = "".join(char if char.isprintable() else " " for char in clean)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def _reason(what: str, error: BaseException) -> str:
    return printable(f"{what}: {text_of(error)}")


def shown(value: object) -> str:
    """Return a value as one bounded line; a ``__repr__`` that raises stops no job."""
    try:
        return printable(repr(value))
    except BaseException as error:  # noqa: BLE001 - as below
        return text_of(error)


def text_of(error: BaseException) -> str:
    """Return an exception's own words, bounded; whatever its ``__str__`` does, there are some."""
    try:
        return printable(error)
    except BaseException:  # noqa: BLE001 - what an exception of the user's cannot say must still be recorded
        return "(it has no readable message)"


def _check_depth(data: bytes) -> None:
    # Over the text, since a look at every value of ten megabytes takes seconds, in which nothing else is done; and a
    # piece at a time, since a megabyte can hold two hundred thousand strings.
    marks = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS)
    level, within = 0, False
    for start in range(0, len(marks), PIECE):
        parts = marks[start : start + PIECE].split(b'"')
        outside = b"".join(parts[within::2])
        within ^= len(parts) % 2 == 0
        levels = [*itertools.accumulate(map(_STEP.__getitem__, outside), initial=level)]
        level = levels[-1]
        if max(levels) > MOST_LEVELS:
            message = f"nested more than {MOST_LEVELS} levels deep"
            raise PayloadError(message)


def _without_values(error: Exception) -> str:
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(error, pydantic.ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return "; ".join(f"{one['msg']} - at `$.{'.'.join(map(str, one['loc']))}`" for one in found)
    return _QUOTED_VALUE.sub(lambda found: found[1] or found[2], text_of(error))


def _is_pydantic(type_: Any) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(type_, type) and issubclass(type_, pydantic.BaseModel)


def _is_data_class(type_: Any) -> bool:
    """Whether it is one of Powertools' event source data classes, which wrap the event that they are given."""
    powertools = sys.modules.get("aws_lambda_powertools.utilities.data_classes.common")
    return powertools is not None and isinstance(type_, type) and issubclass(type_, powertools.DictWrapper)


def _encode_other(value: Any) -> Any:
    if _is_pydantic(type(value)):
        return value.model_dump(mode="json")
    if _is_data_class(type(value)):
        return value.raw_event
    message = f"objects of type {type(value).__name__} have no JSON form"
    raise TypeError(message)


def _decode_other(type_: Any, value: Any) -> Any:
    if _is_pydantic(type_):
        try:
            return type_.model_validate(value)
        except ValueError as error:
            raise ValueError(_without_values(error)) from None
    message = f"values of type {type_!r} cannot be read from JSON"
    raise TypeError(message)


def _encoded(value: object) -> bytes:
    try:
        return _encoder.encode(value)
    except TypeError:
        # Sorted, msgspec takes only text for a mapping's keys; JSON's own way is to write numbers as text.
        return _encoder.encode(msgspec.to_builtins(value, enc_hook=_encode_other, str_keys=True))


# msgspec sorts sets and mappings, so equal values are equal text whatever order a set came in.
_encoder = msgspec.json.Encoder(enc_hook=_encode_other, order="deterministic")
_decoder = msgspec.json.Decoder()


def _has_nonfinite(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(_has_nonfinite(item) for item in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_has_nonfinite(item) for item in value)
    return False


def _integral(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    # In place: the value was decoded for this, and may be a large one.
    if isinstance(value, dict):
        for key, item in value.items():
            value[key] = _integral(item)
    if isinstance(value, list):
        for position, item in enumerate(value):
            value[position] = _integral(item)
    return value
