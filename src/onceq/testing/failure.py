"""What a call raises where a scenario lets it fail: what was given as ``fails=``, or the default, which nobody said."""

from __future__ import annotations

from onceq.errors import ConfigurationError
from onceq.testing.errors import EffectFailed

# A class of exceptions, or one that is made; ``None`` where nobody said.
Fails = type[Exception] | Exception | None


def failure(given: Fails, name: str) -> Exception:
    """Return what a call of that function raises."""
    chosen = EffectFailed if given is None else given
    return chosen if isinstance(chosen, Exception) else chosen(f"{name}: the provider is down")


def check_failure(option: str, given: object) -> None:
    """Raise if nothing can fail with this.

    Args:
        option: What it was given as.
        given: What was given; ``None`` for nothing.

    Raises:
        ConfigurationError: If it is no exception, or a class whose exceptions are made of more than a text.
    """
    if given is None or isinstance(given, Exception):
        return
    if not (isinstance(given, type) and issubclass(given, Exception)):
        message = (
            f"{option} is {given!r}, no exception: give a class of exceptions, or an exception, that your client "
            "raises when the provider does not answer, for example TimeoutError"
        )
        raise ConfigurationError(message)
    try:
        failure(given, "effect")
    except Exception as error:
        name = given.__name__
        message = (
            f"{option}: {name} cannot be made of a text alone ({type(error).__name__}: {error}): give one that is "
            f"made, {name}(…)"
        )
        raise ConfigurationError(message) from error
