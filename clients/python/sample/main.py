"""A receiver on the kit, the standard library and psycopg; it behaves as docs/receivers/python/main.py does.

Enters: POST /events, one copy of an event. Leaves: 2xx after the key and the effect were committed together.
The effect: an account's balance grows by the event's amount. GET /events/{key} says whether that has happened.

Environment: DATABASE_URL, LISTEN (127.0.0.1:8082), WEBHOOK_SECRET (one or more, separated by spaces; none: no check).
"""

import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from oncebox_receiver import TABLE, Answer, Once, Refused, Unverified, read_signed, secret_in, verify
from psycopg_pool import ConnectionPool

LARGEST_BODY = 8 << 20
ACCOUNTS = "create table if not exists accounts (name text primary key, balance bigint not null)"
CREDIT = """
    insert into accounts (name, balance) values (%s, %s)
    on conflict (name) do update set balance = accounts.balance + excluded.balance
"""


def receive(once, secrets, headers, body):
    try:
        if secrets:
            verify(secrets, headers, body, time.time())
        event = read_signed(headers, body)
    except Unverified:
        return Answer(401, "the signature is not good\n")
    except Refused as refused:
        return Answer(refused.status, "no webhook-id\n" if refused.reason == "noKey" else f"{refused}\n")
    credit = credit_in(body)
    if credit is None:
        return Answer(422, "no data with account and amount\n")
    return once.process(event, lambda connection: connection.execute(CREDIT, credit))


def secrets_in(text):
    secrets = [secret_in(one) for one in text.split()]
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
    once: Once
    secrets: list[bytes]

    def do_POST(self):
        length = self.headers.get("content-length", "")
        if self.path != "/events" or not length.isdecimal():
            # The body is not read, so nothing can follow it on this connection.
            self.close_connection = True
            return self.answer(Answer(404 if length.isdecimal() else 411, ""))
        if int(length) > LARGEST_BODY:
            self.close_connection = True
            return self.answer(Answer(413, ""))
        self.answer(receive(self.once, self.secrets, self.headers, self.rfile.read(int(length))))

    def do_GET(self):
        folder, _, key = self.path.rpartition("/")
        self.answer(self.once.lookup(unquote(key)) if folder == "/events" else Answer(404, ""))

    def answer(self, answer):
        if answer.cause and answer.status != 409:
            self.log_error("%d: %r", answer.status, answer.cause)
        body = answer.text.encode()
        self.send_response(answer.status)
        for name, value in {"content-length": str(len(body)), **answer.headers}.items():
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
    pool = ConnectionPool(os.environ["DATABASE_URL"], min_size=1, max_size=8, timeout=5, open=True)
    Handler.once = Once(pool.connection)
    with pool.connection() as connection:
        connection.execute(TABLE)
        connection.execute(ACCOUNTS)
    server = Server((host, int(port)), Handler)
    print("listening on {}:{}".format(*server.server_address[:2]), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
