"""What an endpoint needs to apply each event of Oncebox once. In reading order: signature, event, once.

Bytes and headers enter, `verify` says whether to believe them, `read` takes the key out, and `Once.process` has the
effect in the transaction that also holds the key.
"""

from .event import Event, Refused, digest_of, read, read_signed
from .once import TABLE, Answer, Applied, LowerFence, Once, OtherBody, apply_once, prune
from .signature import TOLERANCE_SECONDS, Unverified, secret_in, verify

__all__ = [
    "TABLE",
    "TOLERANCE_SECONDS",
    "Answer",
    "Applied",
    "Event",
    "LowerFence",
    "Once",
    "OtherBody",
    "Refused",
    "Unverified",
    "apply_once",
    "digest_of",
    "prune",
    "read",
    "read_signed",
    "secret_in",
    "verify",
]
