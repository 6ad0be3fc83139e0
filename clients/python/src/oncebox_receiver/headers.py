"""Headers of any kind of mapping, looked up without regard to case.

Must hold: a header that came twice is never taken for one that came once.
"""

import re

PRINTABLE = re.compile("[ -~]+")


def values(headers, name):
    """All values of a header. `headers` has `items()`, as dictionaries and `email.message.Message` have."""
    return [value for given, value in headers.items() if given.lower() == name]
