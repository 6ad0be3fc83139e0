"""Makes vectors.json, which every kit's tests run: python3 vectors.py > vectors.json

Enters: nothing. Leaves: the same bytes each time. Must hold: nothing of the kits is used, only Python's own library, so
that a kit and its expectations cannot share a mistake.
"""

import base64
import hashlib
import hmac
import json
import re

NOW = 1_750_000_000
OLD, NEW, STRANGER = (hashlib.sha256(name).digest()[:24] for name in (b"old", b"new", b"stranger"))
# In base64 it is full of + and /.
SIGNS = b"\xfb\xef\xbe" * 6 + b"\xff" * 6
PRINTABLE = "".join(map(chr, range(32, 127)))
KEY = "sales-orders-8ffhAxCgx0aHmT2a8hd2F7"
BODY = '{"eventType":"Credited","data":{"account":"caf\u00e9","amount":10}}'

# As in docs/receivers.md. The kits make it where it is absent.
TABLE = """
create table if not exists processed_events (
    key text primary key,
    digest text not null,
    source text,
    fence bigint,
    received_at timestamptz not null default now());
create index if not exists processed_events_age on processed_events (received_at);
"""


def secret(raw):
    return "whsec_" + base64.b64encode(raw).decode()


def sign(raw, key=KEY, timestamp=str(NOW), body=BODY):
    mac = hmac.new(raw, f"{key}.{timestamp}.{body}".encode(), hashlib.sha256)
    return "v1," + base64.b64encode(mac.digest()).decode()


def digest(body):
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}:"


def secrets():
    yield {"name": "with its prefix", "text": secret(OLD), "hex": OLD.hex()}
    yield {"name": "without", "text": secret(OLD).removeprefix("whsec_"), "hex": OLD.hex()}
    yield {"name": "with padding", "text": secret(OLD[:16]), "hex": OLD[:16].hex()}
    yield {"name": "with plus and slash", "text": secret(SIGNS), "hex": SIGNS.hex()}
    for name, text in [
        ("empty", ""),
        ("only the prefix", "whsec_"),
        ("no base64", "whsec_MfKQ*r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ("base64 for URLs", "whsec_--__--__--__--__--__--__--__--__"),
        ("padding cut off", secret(OLD[:16]).rstrip("=")),
        ("a space inside", secret(OLD)[:12] + " " + secret(OLD)[12:]),
    ]:
        yield {"name": name, "text": text, "refused": True}


def signatures():
    def case(name, result, known=(OLD,), key=KEY, timestamp=str(NOW), given=None, body=BODY, now=NOW, more=()):
        headers = [("webhook-id", key), ("webhook-timestamp", timestamp), ("webhook-signature", given)]
        headers = [[header, value] for header, value in [*headers, *more] if value is not None]
        secrets = [secret(raw) for raw in known]
        return {"name": name, "secrets": secrets, "headers": headers, "body": body, "now": now, "result": result}

    good = sign(OLD)
    yield case("good", "good", given=good)
    yield case("an empty body", "good", given=sign(OLD, body=""), body="")
    yield case("a body with zeros and line ends", "good", given=sign(OLD, body="\0\r\n\0"), body="\0\r\n\0")
    yield case("a key with dots", "good", key="a.b.1", given=sign(OLD, key="a.b.1"))
    yield case("names in capitals", "good", key=None, timestamp=None, more=[
        ("Webhook-Id", KEY), ("WEBHOOK-TIMESTAMP", str(NOW)), ("Webhook-Signature", good)])
    yield case("rotation: the old secret of two", "good", known=(NEW, OLD), given=good)
    yield case("rotation: the new secret of two", "good", known=(NEW, OLD), given=sign(NEW))
    yield case("rotation: two signatures, the second is known", "good", given=f"{sign(NEW)} {good}")
    yield case("rotation: two signatures, the first is known", "good", given=f"{good} {sign(NEW)}")
    yield case("other versions beside it", "good", given=f"v1a,c2lnbmF0dXJl {good} v2,AAAA")
    yield case("two spaces between", "good", given=f"{sign(NEW)}  {good}")
    for name, moved, result in [
        ("as old as may be", -300, "good"),
        ("a second older", -301, "expired"),
        ("as new as may be", 300, "good"),
        ("a second newer", 301, "expired"),
        ("days old", -400_000, "expired"),
    ]:
        at = str(NOW + moved)
        yield case(name, result, timestamp=at, given=sign(OLD, timestamp=at))
    yield case("another's secret", "wrong", given=sign(STRANGER))
    yield case("no secrets known", "wrong", known=(), given=good)
    yield case("another key", "wrong", key=KEY + "x", given=good)
    yield case("another time", "wrong", timestamp=str(NOW - 1), given=good)
    yield case("another body", "wrong", body=BODY.replace("10", "11"), given=good)
    yield case("the same JSON in other bytes", "wrong", body=BODY + " ", given=good)
    yield case("the end of the key cut off", "wrong", key="a", given=sign(OLD, key="a.1"))
    yield case("another version", "wrong", given=good.replace("v1,", "v2,"))
    yield case("no version", "wrong", given=good.removeprefix("v1,"))
    yield case("a capital version", "wrong", given=good.replace("v1,", "V1,"))
    yield case("cut off", "wrong", given=good[:-4])
    yield case("something behind it", "wrong", given=good + "AAAA")
    yield case("separated by commas", "wrong", given=f"{good},{good}")
    yield case("in hexadecimal", "wrong", given="v1," + base64.b64decode(good[3:]).hex())
    yield case("an empty signature", "wrong", given="v1,")
    yield case("none", "unsigned")
    yield case("no key", "unsigned", key=None, given=good)
    yield case("an empty key", "unsigned", key="", given=good)
    yield case("no time", "unsigned", timestamp=None, given=good)
    for text in ["", "soon", "-5", "+5", "1e9", f"{NOW}.0", "0x10", "9" * 13]:
        yield case(f"a time that is none: {text!r}", "unsigned", timestamp=text, given=sign(OLD, timestamp=text))
    yield case("two keys", "unsigned", given=good, more=[("webhook-id", "another")])
    yield case("two times", "unsigned", given=good, more=[("webhook-timestamp", str(NOW))])


def requests():
    def case(name, *headers, key=None, refused=None, signed=None, signed_refused=None, body=BODY, **fields):
        """`signed` and `signed_refused`: what reading `webhook-id` alone says, where it differs."""
        one = {"name": name, "headers": [list(header) for header in headers], "body": body}
        one["read"] = {"refused": refused} if refused else {"key": key}
        one["readSigned"] = (
            {"refused": signed_refused} if signed_refused else {"key": signed} if signed else one["read"]
        )
        if not refused or signed:
            empty = {"event": None, "attempt": None, "fence": None, "source": None, "digest": digest(body)}
            one["fields"] = {**empty, **fields}
        return one

    # -- keys
    both = [("webhook-id", KEY), ("idempotency-key", f'"{KEY}"')]
    yield case("both key headers", *both, key=KEY)
    yield case("webhook-id alone", both[0], key=KEY)
    yield case("Idempotency-Key alone", both[1], key=KEY, signed_refused="noKey")
    yield case("names in capitals", ("Webhook-Id", KEY), ("IDEMPOTENCY-KEY", f'"{KEY}"'), key=KEY)
    yield case("they differ", both[0], ("idempotency-key", '"another"'), refused="keysDiffer", signed=KEY)
    yield case("they differ in a capital", both[0], ("idempotency-key", f'"{KEY.upper()}"'), refused="keysDiffer", signed=KEY)
    yield case("neither", refused="noKey")
    yield case("an empty webhook-id", ("webhook-id", ""), refused="badKey")
    yield case("an empty webhook-id beside a key", ("webhook-id", ""), both[1], refused="badKey")
    yield case("two webhook-ids", ("webhook-id", "a"), ("webhook-id", "a"), refused="badKey")
    twice = [("idempotency-key", '"a"')] * 2
    yield case("two Idempotency-Keys", *twice, refused="badKey", signed_refused="noKey")
    yield case("a quoted webhook-id is another key", ("webhook-id", '"a"'), key='"a"')
    yield case("one character", ("webhook-id", "a"), ("idempotency-key", '"a"'), key="a")
    yield case("255 characters", ("webhook-id", "k" * 255), ("idempotency-key", f'"{"k" * 255}"'), key="k" * 255)
    yield case("256 characters", ("webhook-id", "k" * 256), refused="badKey")
    for name, text, key in [
        ("a space and a comma", '"a, b"', "a, b"),
        ("an escaped quote", r'"a\"b"', 'a"b'),
        ("an escaped backslash", r'"a\\b"', "a\\b"),
        ("an escaped backslash at the end", r'"a\\"', "a\\"),
        ("all of ASCII that can be printed", '"%s"' % re.sub(r'(["\\])', r"\\\1", PRINTABLE), PRINTABLE),
        ("a semicolon inside", '"a;b=1"', "a;b=1"),
    ]:
        yield case(f"string: {name}", ("idempotency-key", text), key=key, signed_refused="noKey")
        if not key.startswith(" "):
            yield case(f"string: {name}, and the same in webhook-id", ("webhook-id", key), ("idempotency-key", text), key=key)
    for name, text in [
        ("no quotes", "abc"),
        ("a token that is the key", KEY),
        ("empty", '""'),
        ("nothing", ""),
        ("one quote", '"'),
        ("not closed", '"abc'),
        ("not opened", 'abc"'),
        ("closed too early", '"a"b"'),
        ("single quotes", "'abc'"),
        ("a lone backslash at the end", '"abc\\"'),
        ("an escape that is none", r'"a\bc"'),
        ("a tab", '"a\tb"'),
        ("beyond ASCII", '"caf\u00e9"'),
        ("a list", '"a", "b"'),
        ("parameters, which Oncebox never sends", '"a";b=1'),
        ("bytes", ":YWJj:"),
    ]:
        yield case(f"no string: {name}", ("idempotency-key", text), refused="badKey", signed_refused="noKey")
    yield case("a broken string beside a good webhook-id", both[0], ("idempotency-key", '"abc'), refused="badKey", signed=KEY)
    # -- what Oncebox tells about the attempt
    # As text: the largest fence is no exact number in every language's JSON.
    told = {"event": "orders/3/42/0", "attempt": 2, "fence": str(2**63 - 1), "source": "sales.public.orders/3/42"}
    headers = [(f"oncebox-{name}", str(value)) for name, value in told.items()]
    yield case("event, attempt, fence, source", *both, *headers, key=KEY, **told)
    # A renamed workflow sends what it has under way again with the keys of before.
    yield case("the workflow is no part of the key", *both, ("oncebox-workflow", "renamed"), key=KEY)
    yield case("a fence of zero", *both, ("oncebox-fence", "0"), key=KEY, fence="0")
    for header, text in [
        ("attempt", "0"), ("attempt", "-1"), ("attempt", "two"), ("attempt", "1.0"), ("attempt", ""), ("attempt", "2147483648"),
        ("fence", "-1"), ("fence", "+1"), ("fence", "x"), ("fence", ""), ("fence", "9223372036854775808"), ("fence", "1" * 30),
    ]:
        yield case(f"{header}: {text!r}", *both, (f"oncebox-{header}", text), refused="badNumber")
    yield case("two fences", *both, ("oncebox-fence", "1"), ("oncebox-fence", "2"), refused="badNumber")
    # -- the digest of the body
    yield case("digest", *both, ("content-digest", digest(BODY)), key=KEY)
    yield case("digest of an empty body", *both, ("content-digest", digest("")), key=KEY, body="")
    yield case("digest beside another algorithm", *both, ("content-digest", f"sha-512=:AAAA:, {digest(BODY)}"), key=KEY)
    another = ("content-digest", "sha-512=:AAAA:")
    yield case("digest in a second line", *both, another, ("content-digest", digest(BODY)), key=KEY)
    yield case("only another algorithm: not checked", *both, ("content-digest", "sha-512=:AAAA:"), key=KEY)
    yield case("digest of other bytes", *both, ("content-digest", digest(BODY + " ")), refused="digestDiffers")
    yield case("digest cut off", *both, ("content-digest", digest(BODY)[:-5] + ":"), refused="digestDiffers")
    yield case("digest without colons", *both, ("content-digest", digest(BODY).replace(":", "")), refused="digestDiffers")
    yield case("an empty digest", *both, ("content-digest", "sha-256=::"), refused="digestDiffers")


def main():
    vectors = {
        "table": TABLE.strip(),
        "secrets": list(secrets()),
        "signatures": list(signatures()),
        "requests": list(requests()),
        "digests": [{"body": body, "digest": digest(body)} for body in ("", "{}", BODY, "\0\n\U0001f600")],
    }
    print(json.dumps(vectors, indent=1))


main()
