"""The codec: what JSON can say comes through exactly, and what it cannot is refused and never changed."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import time
import tracemalloc
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceq import codec
from onceq.codec import MOST_LEVELS, ResultNotStored, decode, encode, encode_result, fingerprint, fit, printable
from onceq.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Callable

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@dataclasses.dataclass
class Point:
    x: float
    y: float | None = None


class Model(pydantic.BaseModel):
    x: float
    y: float | None = None


class Nullable(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(ser_json_inf_nan="null")
    x: float


class Struct(msgspec.Struct):
    x: float
    y: float | None = None


class Typed(TypedDict):
    x: float


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Holder:
    inner: Any


NONFINITE = [math.nan, math.inf, -math.inf]
WRAPPERS: dict[str, Any] = {
    "bare": lambda value: value,
    "list": lambda value: [1, [value]],
    "tuple": lambda value: (value,),
    "set": lambda value: {value},
    "mapping": lambda value: {"a": {"b": value}},
    "beside null": lambda value: {"a": None, "b": [value]},
    "dataclass": Point,
    "Struct": Struct,
    "pydantic": Model.model_construct,
    "pydantic that writes null": lambda value: Nullable.model_construct(x=value),
    "pydantic in a dataclass in a list": lambda value: [Holder(Model.model_construct(x=1.0, y=value))],
    "dataclass in a mapping": lambda value: {"p": Point(1.0, value)},
}
WRAPPERS["pydantic"] = lambda value: Model.model_construct(x=value)


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=list(WRAPPERS))
@pytest.mark.parametrize("value", NONFINITE, ids=str)
def test_nan_and_the_infinities_are_refused_wherever_they_stand(wrap: Any, value: float) -> None:
    """JSON has no word for them, and msgspec would write null: the value would silently change."""
    with pytest.raises(PayloadError, match="NaN and the infinities"):
        encode(wrap(value))


@given(JSON_VALUES)
def test_what_json_can_say_comes_back_exactly(value: object) -> None:
    """G10: the value that is replayed equals the value that was stored, whole numbers and floats included."""
    text = encode(value)

    assert decode(text) == value
    assert json.loads(text) == value
    assert encode(decode(text)) == text


@pytest.mark.parametrize("number", [0, -1, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**40, -(10**400)])
def test_whole_numbers_are_exact_at_any_size(number: int) -> None:
    """No detour over a float: an order number of twenty digits stays itself."""
    assert decode(encode(number)) == number
    assert encode(number) == str(number)


@pytest.mark.parametrize("value", [None, 0, False, "", [], {}, 0.0], ids=repr)
def test_falsy_values_are_values(value: object) -> None:
    """G10: None, 0, "" and [] are results, and come back as what they are."""
    back = decode(str(encode_result(value, 100)))

    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime(2026, 11, 29, 12, tzinfo=UTC), '"2026-11-29T12:00:00Z"'),
        (date(2026, 11, 29), '"2026-11-29"'),
        (timedelta(seconds=90), '"PT90S"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.10"), '"1.10"'),
        (Colour.RED, '"red"'),
        (b"\x00\xff", '"AP8="'),
        ((1, "a"), '[1,"a"]'),
        ({3, 1, 2}, "[1,2,3]"),
        (frozenset({"b", "a"}), '["a","b"]'),
        ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
        (Point(1.0), '{"x":1.0,"y":null}'),
        (Struct(1.0), '{"x":1.0,"y":null}'),
        (Model(x=1.0), '{"x":1.0,"y":null}'),
        ([Holder(Model(x=1.0))], '[{"inner":{"x":1.0,"y":null}}]'),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_type_has_one_form(value: object, text: str) -> None:
    """What msgspec and pydantic know is written in one way, sets and mappings sorted."""
    assert encode(value) == text


@given(st.sets(st.text(max_size=5), max_size=12))
def test_equal_sets_are_equal_text(values: set[str]) -> None:
    """A set's order changes from process to process; its text and its fingerprint do not."""
    other: set[str] = set()
    for value in sorted(values, reverse=True):
        other.add(value)

    assert encode(values) == encode(other)
    assert fingerprint(values) == fingerprint(other)


REFUSED: dict[str, Any] = {
    "an object": object(),
    "a function": len,
    "a complex number": 1j,
    "a lone surrogate": "\ud800",
    "a lone surrogate as a key": {"\udfff": 1},
    "a mapping with pairs as keys": {(1, 2): "a"},
    "a number of 5000 digits": 10**5000,
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_written_is_refused_with_a_reason(value: object) -> None:
    """G10: an encoder that cannot go on says so in one bounded line, and nothing else is raised."""
    with pytest.raises(PayloadError) as refused:
        encode(value)
    assert printable(refused.value) == str(refused.value)

    stored = encode_result(value, 1_000)
    assert isinstance(stored, ResultNotStored)
    assert stored.reason.startswith("not encodable: ")


def test_a_mapping_with_numbers_as_keys_is_written_as_json_does_it() -> None:
    """G10: numbers as keys come out as text, in a fixed order, so the result is stored and replayed."""
    assert encode({2: {10: "b"}, 1: "a"}) == '{"1":"a","2":{"10":"b"}}'
    assert encode_result([{1: (2, 3)}], 100) == '[{"1":[2,3]}]'
    with pytest.raises(PayloadError, match="NaN"):
        encode({1: float("nan")})


def test_a_result_whose_own_code_exits_is_not_stored() -> None:
    """G10: whatever the code of a user's result does, the effect is recorded."""

    class Exiting(pydantic.BaseModel):
        def model_dump(self, **_: object) -> dict[str, object]:
            raise SystemExit(3)

    assert isinstance(encode_result(Exiting(), 100), ResultNotStored)


def deep(levels: int) -> list[Any]:
    """Return a list in a list in a list."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def test_deep_nesting_and_cycles_are_refused() -> None:
    """A body of a hundred thousand brackets, or a value that holds itself, must not bring the process down."""
    cycle: list[Any] = []
    cycle.append(cycle)

    for value in (deep(50_000), cycle):
        with pytest.raises(PayloadError, match="recursion"):
            encode(value)
        assert isinstance(encode_result(value, 1_000), ResultNotStored)
    with pytest.raises(PayloadError, match="recursion"):
        decode("[" * 100_000 + "]" * 100_000)


def levels_of(value: Any) -> int:
    """Return how deep a value is nested, by a look at every value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(levels_of, inner), default=0)


AWKWARD = st.text(alphabet='[]{}"\\,:a\n\u00fc\U0001f600', max_size=6)


@given(
    levels=st.integers(190, 210),
    wrappings=st.lists(st.tuples(st.booleans(), AWKWARD, AWKWARD), min_size=1, max_size=5),
    innermost=JSON_VALUES | AWKWARD,
    ascii_only=st.booleans(),
)
def test_the_levels_are_those_of_the_values(
    levels: int, wrappings: list[tuple[bool, str, str]], innermost: Any, *, ascii_only: bool
) -> None:
    """Brackets and quotes inside strings and keys, escaped or not, nest nothing."""
    value = innermost
    for number in range(levels):
        is_list, name, beside = wrappings[number % len(wrappings)]
        value = [beside, value, [], {}] if is_list else {name: value, f"{name}]": beside, f"{name}[": [{}]}
    text = json.dumps(value, ensure_ascii=ascii_only)

    for given_as in (text, text.encode()):
        if levels_of(value) > MOST_LEVELS:
            with pytest.raises(PayloadError, match="nested more than 200 levels deep"):
                decode(given_as)
        else:
            assert decode(given_as) == value


@pytest.mark.parametrize(
    ("opening", "closing", "inside"),
    [("[", "]", ""), ("[", "]", "1"), ('{"a":', "}", "1"), ('{"]":', "}", '"["'), ('["[\\"[",', "]", '"\\\\"')],
)
def test_two_hundred_levels_are_read_and_one_more_is_not(opening: str, closing: str, inside: str) -> None:
    """To the level."""
    whole = opening * 200 + inside + closing * 200
    assert levels_of(decode(whole)) == 200
    with pytest.raises(PayloadError, match="nested more than 200 levels deep"):
        decode(opening + whole + closing)
    assert levels_of(decode("[" + ",".join([whole[len(opening) : -len(closing)]] * 3) + "]")) == 200


LARGE: dict[str, Callable[[int], str]] = {
    "one long string": lambda size: '["' + "[{" * (size // 2) + '"]',
    "escaped quotes": lambda size: '["' + '[\\"' * (size // 3) + '"]',
    "short strings": lambda size: "[" + '["["],' * (size // 6) + "1]",
    "brackets alone": lambda size: "[" + "[]," * (size // 3) + "1]",
}


@pytest.mark.parametrize("name", LARGE)
def test_the_levels_of_a_large_text_take_little_memory(name: str) -> None:
    """G5: what a body of a few megabytes takes beside itself ends no process."""
    text = LARGE[name](1_000_000).encode()

    assert peak_of(lambda: codec._check_depth(text)) < 4 * len(text)


@pytest.mark.parametrize("name", LARGE)
def test_the_levels_of_a_large_text_take_time_in_proportion(name: str) -> None:
    """G5: eight times the text is not sixty-four times the work."""
    small, large = (LARGE[name](size).encode() for size in (50_000, 400_000))

    assert seconds_of(large) < 32 * seconds_of(small)


def peak_of(act: Callable[[], object]) -> int:
    """Return the most bytes that Python held at once while it did something, beyond those before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        act()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def seconds_of(text: bytes) -> float:
    """Return the time of this thread that the check of a text takes, the least of five."""
    taken = []
    for _ in range(5):
        began = time.thread_time_ns()
        codec._check_depth(text)
        taken.append(time.thread_time_ns() - began)
    return min(taken)


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __hash__(self) -> int:
        raise RuntimeError("no")


class Exploding(pydantic.BaseModel):
    x: int = 1

    def model_dump(self, **_: Any) -> Any:
        """Fail."""
        raise KeyError("boom")


@pytest.mark.parametrize("value", [Hostile(), Exploding(), [Exploding()]], ids=["repr", "dump", "nested"])
def test_a_result_whose_own_code_raises_is_not_stored(value: object) -> None:
    """G10: the effect has happened, so whatever a result's own methods raise, the job is recorded."""
    assert isinstance(encode_result(value, 1_000), ResultNotStored)


def test_a_result_is_measured_in_bytes() -> None:
    """An item's size counts UTF-8: four characters of four bytes are sixteen, and two quotes."""
    assert encode_result("😀" * 4, 18) == '"😀😀😀😀"'
    assert encode_result("😀" * 4, 17) == ResultNotStored("too large: 18 bytes, and at most 17 are stored")


@pytest.mark.parametrize(
    "text", ["", " ", "nonsense", "NaN", "Infinity", "1e400", "9" * 5000, '"\\ud800"', "{", b"\xff", b'"\xed\xa0\x80"']
)
def test_text_that_is_not_json_is_refused_with_a_reason(text: str | bytes) -> None:
    """A body is whatever somebody sent; one that cannot be read is a PayloadError and nothing else."""
    with pytest.raises(PayloadError, match="not JSON: "):
        decode(text)


@pytest.mark.parametrize("type_", [Point, Struct, Model], ids=lambda type_: type_.__name__)
def test_a_payload_is_fitted_to_its_type(type_: Any) -> None:
    """Dataclass, Struct and pydantic model come out as themselves, with their defaults."""
    assert fit({"x": 1}, type_) == type_(x=1.0)
    assert fit({"x": 1}, Typed) == {"x": 1.0}
    assert fit({"x": 1}, Any) == {"x": 1}
    assert fit({"x": 1}, dict) == {"x": 1}
    assert fit([{"inner": 1}], list[Holder]) == [Holder(1)]


def test_a_pydantic_model_inside_another_type_is_fitted() -> None:
    """Models may stand anywhere in a payload."""

    @dataclasses.dataclass
    class Order:
        lines: list[Model]

    assert fit({"lines": [{"x": 1}]}, Order) == Order([Model(x=1.0)])
    with pytest.raises(PayloadError, match="the payload does not fit") as refused:
        fit({"lines": [{"x": "a secret"}]}, Order)
    assert "secret" not in str(refused.value)


@dataclasses.dataclass
class Chosen:
    colour: Colour
    size: Literal["s", "m"] = "s"


@pytest.mark.parametrize(
    ("type_", "value", "path"),
    [
        (Point, {"x": "a secret"}, "$.x"),
        (Point, {}, "x"),
        (Struct, {"x": ["a secret"]}, "$.x"),
        (Model, {"x": "a secret"}, "$.x"),
        (Model, {"x": 1, "y": {"a secret": 1}}, "$.y"),
        (Chosen, {"colour": "a secret"}, "$.colour"),
        (Chosen, {"colour": "red", "size": "a secret - at `$.x`"}, "$.size"),
        (Colour, "a secret", ""),
        (dict, "a secret", "object"),
        (int, 1.5, "int"),
    ],
)
def test_a_payload_that_does_not_fit_says_where_and_never_what(type_: Any, value: object, path: str) -> None:
    """The reason is logged, and payloads are not: it names the place and the expectation, and no value."""
    with pytest.raises(PayloadError, match="the payload does not fit: ") as refused:
        fit(value, type_)

    assert path in str(refused.value)
    assert "secret" not in str(refused.value)


@given(JSON_VALUES)
def test_a_fingerprint_is_of_the_value_and_not_of_its_text(value: object) -> None:
    """Spaces, key order and the spelling of numbers differ between producers; the payload does not."""
    respelt = json.loads(json.dumps(value, indent=1))

    assert fingerprint(value) == fingerprint(respelt)
    assert len(fingerprint(value)) == 64


@pytest.mark.parametrize("number", [0, 1, -3, 10**15, 10**16, 10**21, 2**60])
def test_a_whole_number_has_one_fingerprint_however_it_is_written(number: int) -> None:
    """Not every producer's JSON tells 1.0 from 1, or 1e16 from its digits."""
    assert fingerprint(float(number)) == fingerprint(int(float(number)))
    assert fingerprint({"a": [float(number)]}) == fingerprint({"a": [int(float(number))]})
    assert fingerprint(-0.0) == fingerprint(0)


@given(JSON_VALUES, JSON_VALUES)
def test_other_values_have_other_fingerprints(one: object, other: object) -> None:
    """A fingerprint that let two payloads pass as one would replay the wrong result."""
    same = encode(_integral(one)) == encode(_integral(other))

    assert (fingerprint(one) == fingerprint(other)) == same


def _integral(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _integral(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_integral(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def test_a_float_in_a_string_is_no_number() -> None:
    """Two strings are equal only where their characters are."""
    assert fingerprint("1.0") != fingerprint("1")
    assert fingerprint({"1e5": "2.0"}) == fingerprint({"1e5": "2.0"})
    assert fingerprint(True) != fingerprint(1)  # noqa: FBT003
    assert fingerprint(1.5) != fingerprint(1)


@given(st.text(alphabet=st.characters(), max_size=200), st.integers(1, 50))
def test_printable_text_is_bounded_and_harmless(text: str, limit: int) -> None:
    """DynamoDB, SQS and a log line take what comes out, whatever an exception said."""
    shown = printable(text + "\ud800\x00\ufffe", limit)

    assert len(shown) <= limit
    assert shown.isprintable()
    shown.encode()
