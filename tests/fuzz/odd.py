"""Odd texts, literals and values: what no honest sender writes."""

from __future__ import annotations

from typing import Any

from kit.world import arn_of

LARGE = "x" * 10_000_000
# What no JSON writer of ours makes, and a parser meets.
ODD_LITERALS = (
    *("1e999", "-1e999", "1E400", "0e99999999", "NaN", "Infinity", "-Infinity", "-0", "-0.0", "01", "1.", ".5", "+1"),
    *("1" + "0" * 5_000, "9" * 4_200, "9" * 30, "-9223372036854775809", "18446744073709551616", "1" + "0" * 400 + ".0"),
    *('"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\ud83d\\ude00"', '"\ufffe"', '"\\uffff"', '"\x7f"', '"\\x"'),
    *("[" * 10_000 + "]" * 10_000, "[" * 201 + "]" * 201, "[" * 150 + "]" * 150, '{"a":' * 10_000 + "1" + "}" * 10_000),
    *("undefined", "'a'", "{}", "[]", "null", "true", '""', '" "', "1.5", "//", "[1,]", '{"a":1,}', "{'a':1}", ""),
)
ODD_TEXTS = (
    *(
        "",
        " ",
        "\t\n",
        "\x00",
        "a\x00b",
        "\ufeff",
        "\ufeff{}",
        "\ufffe",
        "\uffff",
        "\ud800",
        "\udfff\ud800",
        "\U0010ffff",
    ),
    *("null", "0", "-1", "999999999999999999999", "1e3", "\u0661", "1_000", "true", "[]", "{}", "a" * 129, "é" * 1_100),
    *("x" * 9_000, "a#b", "~lock#x", "<aws.scheduler.execution-id>", "..", "a b", "\u2028", "e\u0301", "__proto__"),
)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, 2**63, 10**30, -(10**120), 1e308, float("nan"), float("inf"), "", " "),
    *([], {}, [None], [[]], {"a": None}, {"": ""}, ["a", 1], {"S": "x"}, {"stringValue": 1}, {"dataType": "String"}),
)
ODD_ATTRIBUTES: tuple[Any, ...] = (
    *(None, "text", 5, [], {}, {"dataType": "String"}, {"dataType": "String", "stringValue": ""}),
    *({"dataType": "Binary", "binaryValue": "not base64"}, {"dataType": "Binary", "binaryValue": ""}),
    *({"dataType": "", "stringValue": "a"}, {"dataType": "Strange", "stringValue": "a"}, {"stringValue": "a"}),
    *({"dataType": "String", "stringValue": "\ud800"}, {"dataType": "String", "stringValue": "\x00"}),
    *({"dataType": "\ud800", "stringValue": "a"}, {"dataType": ["String"], "stringValue": ["a"]}),
    *({"dataType": "String", "stringValue": "x" * 1_100_000}, {"dataType": "String.\U0001f600", "stringValue": "a"}),
)
NOTES = (
    *('{"version": 2}', '{"version": -1}', '{"version": true}', '{"version": 1e999}', '{"version": ' + "9" * 400 + "}"),
    *('{"version": "2"}', "[]", "null", "", "{", '{"version": {"a": 1}}', "[" * 10_000, '{"version": 2, "version": 3}'),
)
COUNTS: tuple[Any, ...] = (
    "-1",
    "0",
    "999999999999999999999999",
    "many",
    "",
    "1.5",
    "\u0661\u0662",
    " 3",
    "+3",
    3,
    -3,
    10**30,
    None,
    [],
    {},
)
ARNS: tuple[Any, ...] = (
    "",
    "arn:aws:sqs:us-east-1:123456789012:Nobody",
    "arn",
    arn_of("JobsQueue").upper(),
    "\ud800",
    5,
    None,
    [],
    {},
)
