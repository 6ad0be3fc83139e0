"""The key and the effect in one transaction of PostgreSQL.

Enters: an `Event` and an effect. Leaves: what to answer. Must hold: the key is inserted before anything else, and 2xx is
answered only when key and effect are committed, by this copy or an earlier one.
"""

import enum
from dataclasses import dataclass, field

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

TABLE = """
    create table if not exists processed_events (
        key text primary key,
        digest text not null,
        source text,
        fence bigint,
        received_at timestamptz not null default now());
    create index if not exists processed_events_age on processed_events (received_at);
"""
INSERT_KEY = """
    insert into processed_events (key, digest, source, fence) values (%s, %s, %s, %s)
    on conflict (key) do nothing
"""
KNOWN = "select digest, fence from processed_events where key = %s"
PRUNE = """
    delete from processed_events
     where key in (select key from processed_events where received_at < now() - %s
                    order by received_at limit %s)
"""
# For this transaction alone: another one, begun after a rollback, does not have the key.
MARK = "select set_config('lock_timeout', %s, true), set_config('oncebox.key', %s, true)"
IS_MARKED = "select current_setting('oncebox.key', true) is not distinct from %s"


class Applied(enum.Enum):
    FRESH = "the key is new: have the effect"
    REPEAT = "the key is known: have none"
    CONFLICT = "the key is known with other bytes: keep the first, have none"
    STALE = "the key is known from a copy with a higher fence: have none"


class InProgress(Exception):
    """Another transaction holds the key."""


class OutcomeUnknown(Exception):
    """The commit failed, perhaps only its answer: the event is processed, or it is not."""


class OtherBody(Exception):
    """The key came with another body than the first one, which is kept. Answered 200."""

    def __init__(self, event):
        super().__init__(f"the key {event.key} came with another body, of digest {event.digest}; the first is kept")


class LowerFence(Exception):
    """The key came with a lower fence than that of the copy that was processed. Answered 200."""

    def __init__(self, event):
        super().__init__(f"the key {event.key} came with fence {event.fence}, and was processed with a higher one")


@dataclass(frozen=True)
class Answer:
    status: int
    text: str
    # Whatever went wrong, or was out of the ordinary, for the log. Never sent.
    cause: Exception | None = None

    @property
    def headers(self):
        return {"retry-after": "1"} if self.status == 503 else {}


# The event is processed in each of these cases, by this copy or another, so that the sender need not come again.
TEXTS = {
    Applied.FRESH: "processed\n",
    Applied.REPEAT: "seen before\n",
    Applied.CONFLICT: "seen before with other bytes; the first are kept\n",
    Applied.STALE: "seen before; a newer attempt was processed\n",
}
CAUSES = {Applied.CONFLICT: OtherBody, Applied.STALE: LowerFence}


def apply_once(connection, event):
    """Inserts the key in the caller's transaction, and commits nothing. Have the effect only after `FRESH`.

    A concurrent copy waits here for the transaction that holds the key, at most for `lock_timeout`.
    """
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise psycopg.ProgrammingError("no transaction: the key would be kept whatever becomes of the effect")
    inserted = connection.execute(INSERT_KEY, (event.key, event.digest, event.source, event.fence)).rowcount
    if inserted == 1:
        return Applied.FRESH
    known = _row(connection, KNOWN, event.key)
    # Pruned since the insert: it was processed, with bytes that nobody knows any more.
    digest, fence = known or (event.digest, None)
    if digest != event.digest:
        return Applied.CONFLICT
    return Applied.STALE if None not in (fence, event.fence) and event.fence < fence else Applied.REPEAT


def prune(connection, older_than, at_most=1000):
    """Forgets the oldest keys, in the caller's transaction. `older_than`: a timedelta. Returns how many they were."""
    return connection.execute(PRUNE, (older_than, at_most)).rowcount


@dataclass(frozen=True)
class Once:
    """`connect()` gives a context manager of a connection without a transaction, as `ConnectionPool.connection` does."""

    connect: object
    lock_timeout: str = field(default="2s", kw_only=True)

    def process(self, event, effect):
        """`effect(connection)` runs at most once per key that is committed, in the transaction of the key."""
        return self._answer(lambda: _answer_to(event, self._process(event, effect)))

    def lookup(self, key):
        """For `endpoint.lookup`. Asks the unique index, which also knows the keys of transactions under way."""
        return self._answer(lambda: Answer(200, "processed\n") if self._is_processed(key) else Answer(404, "not processed\n"))

    def _process(self, event, effect):
        with self.connect() as connection:
            connection.execute(MARK, (self.lock_timeout, event.key))
            try:
                applied = apply_once(connection, event)
            except psycopg.errors.LockNotAvailable as error:
                raise InProgress from error
            if applied is Applied.FRESH:
                effect(connection)
                _commit(connection, event.key)
            return applied

    def _is_processed(self, key):
        # Rolled back on an autocommit connection too: a key that stayed would pass for an effect.
        with self.connect() as connection, connection.transaction(force_rollback=True):
            connection.execute(MARK, ("100ms", key))
            try:
                return connection.execute(INSERT_KEY, (key, "", None, None)).rowcount == 0
            except psycopg.errors.LockNotAvailable as error:
                raise InProgress from error

    def _answer(self, act):
        try:
            return act()
        except InProgress as error:
            return Answer(409, "this key is being processed\n", error)
        except OutcomeUnknown as error:
            return Answer(500, "perhaps processed\n", error)
        except Exception as error:
            return Answer(503, "not processed\n", error)


def _answer_to(event, applied):
    cause = CAUSES.get(applied)
    return Answer(200, TEXTS[applied], cause and cause(event))


def _commit(connection, key):
    # PostgreSQL answers the commit of a failed transaction without an error, and rolls back. One that works may have been
    # begun after the transaction of the key was rolled back.
    works = connection.info.transaction_status == TransactionStatus.INTRANS
    if not works or _row(connection, IS_MARKED, key) != (True,):
        raise psycopg.ProgrammingError("the effect failed or ended the transaction, and did not say so")
    try:
        connection.commit()
    except psycopg.Error as error:
        raise OutcomeUnknown("commit") from error


def _row(connection, query, key):
    # Whatever rows the connection makes otherwise.
    with connection.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(query, (key,)).fetchone()
