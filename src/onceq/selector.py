"""What selects a part of a value: a JMESPath expression over its JSON, or a callable over its type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jmespath
import jmespath.exceptions

from onceq.codec import printable
from onceq.errors import ConfigurationError, MessageError

Selector = Callable[[Any], Any] | str


def check_expression(called: str, expression: Any) -> None:
    """Check a JMESPath expression, so that a mistake shows at import.

    Args:
        called: What it is for, for the error.
        expression: The expression.

    Raises:
        ConfigurationError: If it is none.
    """
    try:
        jmespath.compile(expression)
    except (jmespath.exceptions.JMESPathError, TypeError, AttributeError) as error:
        message = f"{called}={expression!r} is not a JMESPath expression: {error}"
        raise ConfigurationError(message) from error


def select(
    selector: Selector, data: Any, loaded: Any, *, called: str, error_type: type[MessageError] = MessageError
) -> Any:
    """Return what a selector selects.

    Args:
        selector: The selector.
        data: The value as JSON, which an expression reads.
        loaded: The value as its type, which a callable reads.
        called: What it is for, for the error.
        error_type: What is raised.

    Raises:
        MessageError: If the user's own function raised, or the expression cannot be applied; of the type asked for.
    """
    try:
        return jmespath.search(selector, data) if isinstance(selector, str) else selector(loaded)
    except Exception as error:  # the user's own function may raise anything
        message = f"{called} raised {printable(repr(error), 200)}"
        raise error_type(message) from error
