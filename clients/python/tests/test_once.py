"""Keys and effects on a real PostgreSQL, each test in a schema of its own; skipped without DATABASE_URL."""

import os
import unittest
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import psycopg
from oncebox_receiver import TABLE, Applied, Event, LowerFence, Once, OtherBody, apply_once, digest_of, prune
from psycopg.rows import dict_row

URL = os.environ.get("DATABASE_URL")
COPIES = 16


def event(key, body=b"{}", fence=None):
    return Event(key, digest_of(body), fence=fence, source="credits/1/42")


@unittest.skipUnless(URL, "no DATABASE_URL")
class OnceTest(unittest.TestCase):
    def setUp(self):
        self.schema = f"clients_python_{uuid.uuid4().hex[:12]}"
        self.connection = self.connect()
        self.addCleanup(self.drop)
        self.connection.execute(f"create schema {self.schema}")
        self.connection.execute(TABLE)
        self.connection.execute("create table effects (key text)")
        self.connection.commit()
        self.once = Once(self.connect)

    def connect(self, **options):
        return psycopg.connect(URL, options=f"-c search_path={self.schema}", **options)

    def drop(self):
        self.connection.rollback()
        self.connection.execute(f"drop schema {self.schema} cascade")
        self.connection.commit()
        self.connection.close()

    def effect_of(self, key):
        return lambda connection: connection.execute("insert into effects values (%s)", (key,))

    def process(self, one):
        return self.once.process(one, self.effect_of(one.key))

    def effects(self):
        found = self.connection.execute("select key from effects order by key").fetchall()
        self.connection.rollback()
        return [key for (key,) in found]

    def test_copies_at_the_same_time_have_one_effect(self):
        with ThreadPoolExecutor(COPIES) as pool:
            answers = list(pool.map(self.process, [event("one")] * COPIES))
        self.assertEqual({answer.status for answer in answers}, {200})
        self.assertEqual([answer.text for answer in answers].count("processed\n"), 1)
        self.assertEqual(self.effects(), ["one"])

    def test_a_repeat_after_a_rollback_has_the_effect(self):
        def fails(connection):
            self.effect_of("one")(connection)
            raise RuntimeError("no")

        answer = self.once.process(event("one"), fails)
        self.assertEqual((answer.status, answer.headers), (503, {"retry-after": "1"}))
        self.assertEqual((self.effects(), self.once.lookup("one").status), ([], 404))
        self.assertEqual(self.process(event("one")).text, "processed\n")
        self.assertEqual(self.process(event("one")).text, "seen before\n")
        self.assertEqual((self.effects(), self.once.lookup("one").status), (["one"], 200))

    def test_other_bytes_under_the_same_key_are_told_apart_and_have_no_effect(self):
        self.assertIsNone(self.process(event("one")).cause)
        answer = self.process(event("one", b'["secret"]'))
        self.assertEqual((answer.status, answer.text), (200, "seen before with other bytes; the first are kept\n"))
        self.assertIsInstance(answer.cause, OtherBody)
        told = str(answer.cause)
        self.assertIn("the key one came with another body", told)
        self.assertIn(digest_of(b'["secret"]'), told)
        self.assertNotIn("secret", told)
        self.assertEqual(self.effects(), ["one"])

    def test_a_word_before_the_key_keeps_two_senders_apart(self):
        for sender in ["orders", "stock"]:
            self.assertEqual(self.process(replace(event("one"), key=f"{sender}:one")).text, "processed\n")
        self.assertEqual(self.effects(), ["orders:one", "stock:one"])
        self.assertEqual([self.once.lookup(key).status for key in ["orders:one", "one"]], [200, 404])

    def test_the_caller_commits(self):
        with self.connect() as connection:
            self.assertIs(apply_once(connection, event("one")), Applied.FRESH)
            self.assertIs(apply_once(connection, event("one")), Applied.REPEAT)
            self.assertIs(apply_once(connection, event("one", b"[]")), Applied.CONFLICT)
            connection.rollback()
            self.assertIs(apply_once(connection, event("one")), Applied.FRESH)

    def test_without_a_transaction_no_key_is_inserted(self):
        with self.connect() as connection:
            connection.autocommit = True
            self.assertRaises(psycopg.ProgrammingError, apply_once, connection, event("one"))

    def test_a_lower_fence_is_told_apart_and_answered_as_processed(self):
        self.process(event("one", fence=7))
        with self.connect() as connection:
            for fence, found in [(6, Applied.STALE), (7, Applied.REPEAT), (8, Applied.REPEAT), (None, Applied.REPEAT)]:
                self.assertIs(apply_once(connection, event("one", fence=fence)), found)
            self.assertIs(apply_once(connection, event("one", b"[]", fence=6)), Applied.CONFLICT)
        answer = self.process(event("one", fence=6))
        self.assertEqual((answer.status, answer.text), (200, "seen before; a newer attempt was processed\n"))
        self.assertIsInstance(answer.cause, LowerFence)
        self.assertIn("the key one came with fence 6", str(answer.cause))
        self.assertEqual(self.effects(), ["one"])

    def test_a_key_that_is_held_is_busy(self):
        once = Once(self.connect, lock_timeout="200ms")
        with self.connect() as holder:
            apply_once(holder, event("one"))
            self.assertEqual(once.process(event("one"), self.effect_of("one")).status, 409)
            self.assertEqual(once.lookup("one").status, 409)
            holder.rollback()
        self.assertEqual(once.lookup("one").status, 404)

    def test_a_commit_that_fails_is_in_doubt(self):
        self.connection.execute("alter table effects add constraint once unique (key) deferrable initially deferred")
        self.connection.execute("insert into effects values ('one')")
        self.connection.commit()
        self.assertEqual(self.process(event("one")).status, 500)
        self.assertEqual(self.once.lookup("one").status, 404)

    def test_an_effect_that_hides_its_failure_is_not_processed(self):
        def hides(connection):
            try:
                connection.execute("select 1 / 0")
            except psycopg.Error:
                pass

        self.assertEqual(self.once.process(event("one"), hides).status, 503)
        self.assertEqual(self.once.lookup("one").status, 404)

    def test_an_effect_that_rolls_back_by_itself_is_not_processed(self):
        def hides(connection):
            try:
                connection.execute("select 1 / 0")
            except psycopg.Error:
                connection.rollback()

        def repeats(connection):
            effect(connection)
            connection.rollback()
            effect(connection)

        def repeats_in_sql(connection):
            connection.execute("rollback")
            connection.execute("begin")
            effect(connection)

        effect = self.effect_of("one")
        for rolls_back in [hides, repeats, repeats_in_sql]:
            self.assertEqual(self.once.process(event("one"), rolls_back).status, 503)
            self.assertEqual((self.effects(), self.once.lookup("one").status), ([], 404))

    def test_an_effect_may_roll_back_to_a_savepoint(self):
        def tries(connection):
            with self.assertRaises(psycopg.Error), connection.transaction():
                connection.execute("select 1 / 0")
            self.effect_of("one")(connection)

        self.assertEqual(self.once.process(event("one"), tries).status, 200)
        self.assertEqual((self.effects(), self.once.lookup("one").status), (["one"], 200))

    def test_an_effect_that_waits_too_long_is_not_busy(self):
        self.connection.execute("lock table effects")
        once = Once(self.connect, lock_timeout="200ms")
        self.assertEqual(once.process(event("one"), self.effect_of("one")).status, 503)
        self.connection.rollback()
        self.assertEqual(once.lookup("one").status, 404)

    def test_a_lookup_keeps_no_key_on_an_autocommit_connection(self):
        once = Once(lambda: self.connect(autocommit=True))
        self.assertEqual((once.lookup("one").status, once.lookup("one").status), (404, 404))
        # Without a transaction nothing is processed, and nothing kept.
        self.assertEqual(once.process(event("one"), self.effect_of("one")).status, 503)
        self.assertEqual((self.effects(), once.lookup("one").status), ([], 404))
        self.assertEqual(self.process(event("one")).text, "processed\n")
        self.assertEqual((self.effects(), once.lookup("one").status), (["one"], 200))

    def test_rows_may_be_of_any_kind(self):
        once = Once(lambda: self.connect(row_factory=dict_row))
        for text in ["processed\n", "seen before\n"]:
            self.assertEqual(once.process(event("one"), self.effect_of("one")).text, text)

    def test_a_database_that_is_away_is_not_processed(self):
        away = Once(lambda: psycopg.connect("postgresql://127.0.0.1:1/none"))
        self.assertEqual(away.process(event("one"), self.effect_of("one")).status, 503)

    def test_old_keys_are_pruned_a_few_at_a_time(self):
        insert = "insert into processed_events values (%s, '', null, null, now() - make_interval(days => %s))"
        for key, days in [("oldest", 40), ("older", 35), ("old", 31), ("young", 29)]:
            self.connection.execute(insert, (key, days))
        self.assertEqual(prune(self.connection, timedelta(days=30), at_most=2), 2)
        left = self.connection.execute("select key from processed_events order by key").fetchall()
        self.assertEqual(left, [("old",), ("young",)])
        self.assertEqual(prune(self.connection, timedelta(days=30)), 1)
