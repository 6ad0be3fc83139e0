"""A receiver that honours Oncebox's key, on the standard library and psycopg.

Enters: POST /events, one copy of an event. Leaves: 2xx after the key and the effect were committed together.
Must hold: however many copies arrive, in whatever order and at the same time, a key has its effect once.
The effect: an account's balance grows by the event's amount. GET /events/{key} says whether that has happened.

Environment: DATABASE_URL, LISTEN (127.0.0.1:8082), WEBHOOK_SECRET (one or more, separated by spaces; none: no check).
"""

import base64
import hashlib
import hmac
import json
import logging
import os
import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import psycopg
from psycopg_pool import ConnectionPool

LARGEST_BODY = 8 << 20
TOLERANCE_SECONDS = 300

TABLES = """
    create table if not exists processed_events (
        key text primary key,
        digest text not null,
        source text,
        fence bigint,
        received_at timestamptz not null default now());
    create table if not exists accounts (name text primary key, balance bigint not null);
"""
INSERT_KEY = """
    insert into processed_events (key, digest, source, fence) values (%s, %s, %s, %s)
    on conflict (key) do nothing
"""
CREDIT = """
    insert into accounts (name, balance) values (%s, %s)
    on conflict (name) do update set balance = accounts.balance + excluded.balance
"""


class OutcomeUnknown(Exception):
    """The commit failed, perhaps only its answer: the event is processed, or it is not."""


def process_once(pool, key, body, source, fence, account, amount):
    """The key and the effect in one transaction. Returns what to tell the sender."""
    digest = digest_of(body)
    with pool.connection() as connection:
        connection.execute("set local lock_timeout = '2s'")
        # A concurrent copy waits here for the transaction that holds the key, and then finds the key taken.
        inserted = connection.execute(INSERT_KEY, (key, digest, source, fence)).rowcount
        if inserted == 0:
            known = connection.execute("select digest from processed_events where key = %s", (key,)).fetchone()
            if known == (digest,):
                return "seen before\n"
            logging.warning("the key %r came with another body, of digest %s", key, digest)
            return "seen before with other bytes; the first are kept\n"
        connection.execute(CREDIT, (account, amount))
        try:
            connection.commit()
        except psycopg.Error as error:
            raise OutcomeUnknown from error
    return "processed\n"


def is_processed(pool, key):
    """Asks the unique index, which also knows the keys of transactions that are still under way."""
    with pool.connection() as connection:
        connection.execute("set local lock_timeout = '100ms'")
        inserted = connection.execute(INSERT_KEY, (key, "", None, None)).rowcount
        connection.rollback()
    return inserted == 0


def digest_of(body):
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"


def is_signed(secrets, headers, body, now):
    """Standard Webhooks, over the bytes as they came: one of the signatures was made with one of the secrets."""
    key, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not re.fullmatch("[0-9]{1,12}", timestamp) or abs(now - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    signed = f"{key}.{timestamp}.".encode() + body
    wanted = [b"v1," + base64.b64encode(hmac.digest(secret, signed, "sha256")) for secret in secrets]
    given = headers.get("webhook-signature", "").encode().split(b" ")
    return any(hmac.compare_digest(one, other) for one in given for other in wanted)


def secrets_in(text):
    secrets = [base64.b64decode(secret.removeprefix("whsec_")) for secret in text.split()]
    if text and not secrets:
        raise ValueError("WEBHOOK_SECRET is blank: a secret, or nothing at all for no check")
    return secrets


def credit_in(body):
    """The account and the amount; None when the body is not such an event."""
    try:
        data = json.loads(body)["data"]
        account, amount = data["account"], data["amount"]
        # JSON can hold what UTF-8 and Postgres cannot: half a surrogate pair, the character 0.
        storable = b"\0" not in account.encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return (account, amount) if storable and type(amount) is int and abs(amount) < 2**53 else None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Buffered, so that head and body of an answer leave together.
    wbufsize = -1
    pool: ConnectionPool
    secrets: list[bytes]

    def do_POST(self):
        length = self.headers.get("content-length", "")
        if self.path != "/events" or not length.isdecimal():
            # The body is not read, so nothing can follow it on this connection.
            self.close_connection = True
            return self.answer(404 if length.isdecimal() else 411)
        if int(length) > LARGEST_BODY:
            self.close_connection = True
            return self.answer(413)
        body = self.rfile.read(int(length))
        if self.secrets and not is_signed(self.secrets, self.headers, body, time.time()):
            return self.answer(401, "the signature is not good\n")
        # `webhook-id` and not `Idempotency-Key`: it is the one that the signature covers.
        key = self.headers.get("webhook-id")
        if not key:
            return self.answer(400, "no webhook-id\n")
        credit = credit_in(body)
        if credit is None:
            return self.answer(422, "no data with account and amount\n")
        source, fence = self.headers.get("oncebox-source"), self.headers.get("oncebox-fence")
        self.try_to(lambda: (200, process_once(self.pool, key, body, source, fence, *credit)))

    def do_GET(self):
        folder, _, key = self.path.rpartition("/")
        if folder != "/events":
            return self.answer(404)
        self.try_to(lambda: (200, "processed\n") if is_processed(self.pool, unquote(key)) else (404, "not processed\n"))

    def try_to(self, act):
        try:
            status, text = act()
        except psycopg.errors.LockNotAvailable:
            self.answer(409, "this key is being processed\n")
        except OutcomeUnknown as error:
            self.log_error("commit: %r", error.__cause__)
            self.answer(500, "perhaps processed\n")
        except psycopg.Error as error:
            self.log_error("database: %r", error)
            self.answer(503, "not processed\n", {"retry-after": "1"})
        else:
            self.answer(status, text)

    def answer(self, status, text="", headers=None):
        body = text.encode()
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code="-", size="-"):
        """Only what went wrong is logged."""


class Server(ThreadingHTTPServer):
    request_queue_size = 128


def main():
    host, _, port = os.environ.get("LISTEN", "127.0.0.1:8082").rpartition(":")
    Handler.secrets = secrets_in(os.environ.get("WEBHOOK_SECRET", ""))
    Handler.pool = ConnectionPool(os.environ["DATABASE_URL"], min_size=1, max_size=8, timeout=5, open=True)
    with Handler.pool.connection() as connection:
        connection.execute(TABLES)
    server = Server((host, int(port)), Handler)
    print("listening on {}:{}".format(*server.server_address[:2]), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
