"""The rules for keys: idempotency keys of jobs, and the keys that are made from them."""

from __future__ import annotations

import hashlib
import re

from onceq.codec import encode
from onceq.errors import IdempotencyKeyError

# Longer keys than this help nobody, and the record's key is hashed from 1,024 bytes on.
MAX_KEY_BYTES = 8_192
# Of a job's key, what a key made from it begins with, to be recognised by people.
READABLE = 64
# What EventBridge Scheduler replaces in a schedule's input
# (https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-schedule-context-attributes.html).
PLACEHOLDER = "<aws.scheduler."
_EFFECT_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


def check_key(key: object, called: str = "the idempotency key") -> str:
    """Return an idempotency key as text.

    Args:
        key: A string that is not blank, or an int, which is written in decimal.
        called: What it is, for the error; a lock's name has the same rules.

    Returns:
        The key.

    Raises:
        IdempotencyKeyError: If it is missing, blank, too long, or of another type: a job never runs unprotected.

    Example:
        >>> check_key(42)
        '42'
    """
    if isinstance(key, int) and not isinstance(key, bool) and abs(key) < 10**100:
        return str(int(key))
    if not isinstance(key, str):
        what = "is missing" if key is None else f"is a {type(key).__name__}"
        message = f"{called} {what}: give a string that is not blank, or an int"
        raise IdempotencyKeyError(message)
    if not key.strip():
        message = f"{called} is blank: give a string that names the job"
        raise IdempotencyKeyError(message)
    if PLACEHOLDER in key:
        message = f"{called} holds {PLACEHOLDER}…>, which only EventBridge Scheduler replaces: is this a test?"
        raise IdempotencyKeyError(message)
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        message = f"{called} holds a lone surrogate, which is not text"
        raise IdempotencyKeyError(message) from None
    if size > MAX_KEY_BYTES:
        message = f"{called} has {size} bytes: at most {MAX_KEY_BYTES} are taken"
        raise IdempotencyKeyError(message)
    return str.__str__(key)  # an Enum of strings is its value, as in the JSON that others read it from


def join_key(*parts: str | int) -> str:
    """Join parts into one idempotency key, without collisions.

    Args:
        parts: What names the job together, each a valid key of its own.

    Returns:
        The parts with ``:`` between them; a ``:`` inside a part is escaped, so different parts never meet.

    Raises:
        IdempotencyKeyError: If there is no part, or one is not a valid key.

    Example:
        >>> join_key("invoice", 7), join_key("a:b", "c") == join_key("a", "b:c")
        ('invoice:7', False)
    """
    if not parts:
        message = "the idempotency key has no parts"
        raise IdempotencyKeyError(message)
    return check_key(":".join(check_key(part).replace("%", "%25").replace(":", "%3A") for part in parts))


def key_of_identity(*parts: str) -> str:
    """Return the idempotency key of something that a service has named, in parts that may be blank or odd.

    Example:
        >>> key_of_identity("photos", " ", "0055AED6")
        'photos: :0055AED6'
    """
    # "<", since a name may hold what looks like a schedule's placeholder.
    return check_key(
        ":".join(part.replace("%", "%25").replace(":", "%3A").replace("<", "%3C") for part in parts),
    )


def key_made_from(job_type: str, key: str, name: str | int) -> str:
    """Return the key of what a job sends or calls, made of the job's own.

    Args:
        job_type: The job type's oldest name.
        key: The job's key.
        name: What the key is for, inside the job.

    Returns:
        The beginning of the job's key, the name and a SHA-256 over all three: the same on every attempt, another one
        for every other job and name, and never longer however long a chain of jobs gets.

    Example:
        >>> key_made_from("process_payment", "o-1", 1)[:6]
        'o-1.1-'
    """
    digest = hashlib.sha256(encode([job_type, key, name]).encode()).hexdigest()
    # With the "." behind it a key could become one with a placeholder.
    readable = key[:READABLE].replace(PLACEHOLDER[:-1], "(aws.scheduler")
    return f"{readable}.{name}-{digest}"


def check_effect_name(name: object) -> str:
    """Return the name of a step, or of an effect that a key is made for.

    Raises:
        ValueError: If it is empty, longer than 100, or holds more than letters, digits, ``_``, ``.``, ``-``.
    """
    if not isinstance(name, str) or not _EFFECT_NAME.fullmatch(name):
        message = f"the effect's name {name!r}: give 1 to 100 letters, digits, '_', '.' or '-'"
        raise ValueError(message)
    return str.__str__(name)  # an Enum of strings is its value
