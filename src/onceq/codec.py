"""JSON in and out: payloads, results, fingerprints. One codec, on msgspec.

What msgspec knows is known here: dataclasses, ``TypedDict``, ``Struct``, datetime, UUID, Decimal, Enum, bytes, sets.
pydantic models are served where the user has pydantic; it is never imported from here.
"""

from __future__ import annotations

import hashlib
import math
import re
import sys
from dataclasses import dataclass
from typing import Any

import msgspec

from onceq.errors import PayloadError

# How msgspec may write a float that has no fraction; in a string it only costs a second look.
_FLOAT = re.compile(r"\d(?:\.0|e)")
# msgspec quotes the value that does not fit; a reason is logged, and a payload is not.
_QUOTED_VALUE = re.compile(r"(Invalid (?:enum )?value) .*?(?= - at `|$)", re.DOTALL)


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
        raise PayloadError(_reason(f"a {type(value).__name__} cannot be written as JSON", error)) from error
    return data.decode()


def decode(text: str | bytes) -> Any:
    """Return the value that JSON text stands for.

    Raises:
        PayloadError: If the text is not JSON, or holds what Python cannot (a lone surrogate, a number out of range).

    Example:
        >>> decode('{"amount": 5}')
        {'amount': 5}
    """
    try:
        return _decoder.decode(text)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise PayloadError(_reason("not JSON", error)) from error


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
        return msgspec.convert(value, type_, dec_hook=_decode_other, str_keys=True)
    except RecursionError as error:
        raise PayloadError(_reason("the payload is nested too deeply", error)) from error
    except Exception as error:  # a payload's own __post_init__ or validator may raise anything
        message = f"the payload does not fit: {_without_values(error)}"
        raise PayloadError(printable(message)) from error


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


def printable(text: object, limit: int = 1000) -> str:
    """Return text that DynamoDB, SQS and a log line accept: bounded, without control characters or lone surrogates."""
    clean = str(text).encode("utf-8", "replace").decode()
    clean = "".join(char if char.isprintable() else " " for char in clean)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def _reason(what: str, error: BaseException) -> str:
    return printable(f"{what}: {error}")


def _without_values(error: Exception) -> str:
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(error, pydantic.ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return "; ".join(f"{one['msg']} - at `$.{'.'.join(map(str, one['loc']))}`" for one in found)
    return _QUOTED_VALUE.sub(r"\1", str(error))


def _is_pydantic(type_: Any) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(type_, type) and issubclass(type_, pydantic.BaseModel)


def _encode_other(value: Any) -> Any:
    if _is_pydantic(type(value)):
        return value.model_dump(mode="json")
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
    if isinstance(value, dict):
        return {key: _integral(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_integral(item) for item in value]
    return value
