"""What the headers say of an event: its key, and which attempt this is.

Enters: headers and the body's bytes. Leaves: an `Event`, or `Refused`.
Must hold: a request whose key can be read in two ways is refused, never guessed at.
"""

import base64
import hashlib
import re
from dataclasses import dataclass

from .headers import PRINTABLE, values

LONGEST_KEY = 255
STRING = re.compile(r' *"((?:[ !#-\[\]-~]|\\["\\])*)" *')


class Refused(Exception):
    """`reason`: noKey, badKey, keysDiffer, badNumber or digestDiffers. `status` is what to answer."""

    def __init__(self, reason):
        super().__init__(f"the request is refused: {reason}")
        self.reason = reason
        # Bytes that were damaged on the way may come whole the next time; the others will not change.
        self.status = 503 if reason == "digestDiffers" else 400


@dataclass(frozen=True)
class Event:
    key: str
    # Of the body as it came, in the form of `content-digest`.
    digest: str
    event: str | None = None
    attempt: int | None = None
    fence: int | None = None
    # topic/partition/offset
    source: str | None = None


def read(headers, body):
    """The key from `webhook-id`, from `Idempotency-Key`, or from both when they say the same."""
    keys = [_plain_key(value) for value in _at_most_one(headers, "webhook-id")]
    keys += [_quoted_key(value) for value in _at_most_one(headers, "idempotency-key")]
    if len(set(keys)) > 1:
        raise Refused("keysDiffer")
    return _event(keys, headers, body)


def read_signed(headers, body):
    """After `verify`: the key from `webhook-id` alone, since the signature does not cover the other header."""
    return _event([_plain_key(value) for value in _at_most_one(headers, "webhook-id")], headers, body)


def digest_of(body):
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"


def _event(keys, headers, body):
    if not keys:
        raise Refused("noKey")
    attempt, fence = _number(headers, "oncebox-attempt", 2**31 - 1), _number(headers, "oncebox-fence", 2**63 - 1)
    if attempt == 0:
        raise Refused("badNumber")
    digest = digest_of(body)
    given = [part.strip() for line in values(headers, "content-digest") for part in line.split(",")]
    if any(part.startswith("sha-256=") and part != digest for part in given):
        raise Refused("digestDiffers")
    event, source = _text(headers, "oncebox-event"), _text(headers, "oncebox-source")
    return Event(keys[0], digest, event, attempt, fence, source)


def _at_most_one(headers, name):
    found = values(headers, name)
    if len(found) > 1:
        raise Refused("badKey")
    return found


def _plain_key(text):
    if not PRINTABLE.fullmatch(text) or len(text) > LONGEST_KEY:
        raise Refused("badKey")
    return text


def _quoted_key(text):
    """A structured-field string (RFC 8941, 3.3.3): printable ASCII in quotes, a backslash before quote and backslash."""
    string = STRING.fullmatch(text)
    if not string:
        raise Refused("badKey")
    return _plain_key(re.sub(r"\\(.)", r"\1", string[1]))


def _number(headers, name, largest):
    found = values(headers, name)
    if not found:
        return None
    if len(found) > 1 or not re.fullmatch("[0-9]{1,19}", found[0]) or int(found[0]) > largest:
        raise Refused("badNumber")
    return int(found[0])


def _text(headers, name):
    return ", ".join(values(headers, name)) or None
