"""Signatures as Standard Webhooks has them: HMAC-SHA256 over `webhook-id.webhook-timestamp.body`.

Enters: the headers, the body's bytes as they came, the secrets, and the time. Leaves: nothing, or `Unverified`.
Must hold: one signature that was made with one of the secrets is enough, and comparing takes the same time
whatever it finds.
"""

import base64
import binascii
import hashlib
import hmac
import re

from .headers import PRINTABLE, values

TOLERANCE_SECONDS = 300


class Unverified(Exception):
    """`reason`: unsigned (a header is missing or is none), expired, or wrong. Answer 401: it is tried again."""

    def __init__(self, reason):
        super().__init__(f"the signature is not good: {reason}")
        self.reason = reason


def secret_in(text):
    """The bytes of a secret: base64, behind `whsec_` or bare. `ValueError` when it is none."""
    try:
        secret = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except binascii.Error as error:
        raise ValueError("the secret is not base64") from error
    if not secret:
        raise ValueError("the secret is empty")
    return secret


def verify(secrets, headers, body, now):
    """`secrets`: bytes, of which one suffices. `now`: seconds since 1970, as `time.time()` gives them."""
    key = _one(headers, "webhook-id")
    timestamp = _one(headers, "webhook-timestamp")
    given = _one(headers, "webhook-signature").encode().split(b" ")
    # ASCII digits only: int() takes signs, underscores and the digits of other scripts.
    if not re.fullmatch("[0-9]{1,12}", timestamp):
        raise Unverified("unsigned")
    if abs(int(now) - int(timestamp)) > TOLERANCE_SECONDS:
        raise Unverified("expired")
    signed = f"{key}.{timestamp}.".encode() + body
    wanted = [b"v1," + base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)) for secret in secrets]
    # A list, so that the first match does not end the comparing.
    if not any([hmac.compare_digest(one, other) for one in given for other in wanted]):
        raise Unverified("wrong")


def _one(headers, name):
    found = values(headers, name)
    if len(found) != 1 or not PRINTABLE.fullmatch(found[0]):
        raise Unverified("unsigned")
    return found[0]
