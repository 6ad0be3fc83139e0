// Keys and effects on a real PostgreSQL, each test in a schema of its own; skipped without DATABASE_URL.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import pg from "pg";
import { type Event, LowerFence, Once, OtherBody, TABLE, applyOnce, digestOf, prune } from "../src/index.js";

const COPIES = 16;
const DAY = 24 * 3600;

interface Books {
  pool: pg.Pool;
  once: Once;
  /** A transaction of the test's own, rolled back at the end. */
  hold(): Promise<pg.PoolClient>;
  effects(): Promise<string[]>;
}

function event(key: string, body = "{}", fence?: bigint): Event {
  return { key, digest: digestOf(Buffer.from(body)), fence, source: "credits/1/42" };
}

const effectOf = (key: string) => (client: pg.PoolClient) => client.query("insert into effects values ($1)", [key]);

function claim(name: string, act: (books: Books) => Promise<void>): void {
  const url = process.env["DATABASE_URL"];
  test(name, { skip: url ? false : "no DATABASE_URL" }, async () => {
    const schema = `clients_typescript_${randomBytes(6).toString("hex")}`;
    const pool = new pg.Pool({ connectionString: url, options: `-c search_path=${schema}`, max: COPIES });
    const held: pg.PoolClient[] = [];
    const books: Books = {
      pool,
      once: new Once(pool),
      async hold() {
        const client = await pool.connect();
        held.push(client);
        await client.query("begin");
        return client;
      },
      async effects() {
        return (await pool.query("select key from effects order by key")).rows.map(({ key }) => key);
      },
    };
    try {
      await pool.query(`create schema ${schema}; ${TABLE} create table effects (key text)`);
      await act(books);
    } finally {
      held.forEach((client) => client.release(true));
      await pool.query(`drop schema ${schema} cascade`);
      await pool.end();
    }
  });
}

claim("copies at the same time have one effect", async ({ once, effects }) => {
  const answers = await Promise.all(Array.from({ length: COPIES }, () => once.process(event("one"), effectOf("one"))));
  assert(answers.every(({ status }) => status === 200));
  assert.equal(answers.filter(({ text }) => text === "processed\n").length, 1);
  assert.deepEqual(await effects(), ["one"]);
});

claim("a repeat after a rollback has the effect", async ({ once, effects }) => {
  const answer = await once.process(event("one"), async (client) => {
    await effectOf("one")(client);
    throw new Error("no");
  });
  assert.deepEqual([answer.status, answer.headers], [503, { "retry-after": "1" }]);
  assert.deepEqual([await effects(), (await once.lookup("one")).status], [[], 404]);
  assert.equal((await once.process(event("one"), effectOf("one"))).text, "processed\n");
  assert.equal((await once.process(event("one"), effectOf("one"))).text, "seen before\n");
  assert.deepEqual([await effects(), (await once.lookup("one")).status], [["one"], 200]);
});

claim("other bytes under the same key are told apart and have no effect", async ({ once, effects }) => {
  assert.equal((await once.process(event("one"), effectOf("one"))).cause, undefined);
  const other = event("one", '["secret"]');
  const { status, text, cause } = await once.process(other, effectOf("one"));
  assert.deepEqual([status, text], [200, "seen before with other bytes; the first are kept\n"]);
  assert(cause instanceof OtherBody);
  assert(cause.message.startsWith("the key one came with another body") && cause.message.includes(other.digest));
  assert(!cause.message.includes("secret"));
  assert.deepEqual(await effects(), ["one"]);
});

claim("a word before the key keeps two senders apart", async ({ once, effects }) => {
  for (const key of ["orders:one", "stock:one"]) {
    assert.equal((await once.process({ ...event("one"), key }, effectOf(key))).text, "processed\n");
  }
  assert.deepEqual(await effects(), ["orders:one", "stock:one"]);
  assert.deepEqual([(await once.lookup("orders:one")).status, (await once.lookup("one")).status], [200, 404]);
});

claim("the caller commits", async ({ hold }) => {
  const client = await hold();
  assert.equal(await applyOnce(client, event("one")), "fresh");
  assert.equal(await applyOnce(client, event("one")), "repeat");
  assert.equal(await applyOnce(client, event("one", "[]")), "conflict");
  await client.query("rollback; begin");
  assert.equal(await applyOnce(client, event("one")), "fresh");
});

claim("a lower fence is told apart and answered as processed", async ({ once, hold, effects }) => {
  await once.process(event("one", "{}", 7n), effectOf("one"));
  const client = await hold();
  for (const [fence, found] of [[6n, "stale"], [7n, "repeat"], [8n, "repeat"], [undefined, "repeat"]] as const) {
    assert.equal(await applyOnce(client, event("one", "{}", fence)), found);
  }
  assert.equal(await applyOnce(client, event("one", "[]", 6n)), "conflict");
  const { status, text, cause } = await once.process(event("one", "{}", 6n), effectOf("one"));
  assert.deepEqual([status, text], [200, "seen before; a newer attempt was processed\n"]);
  assert(cause instanceof LowerFence && cause.message.startsWith("the key one came with fence 6"));
  assert.deepEqual(await effects(), ["one"]);
});

claim("a key that is held is busy", async ({ pool, hold }) => {
  const once = new Once(pool, { lockTimeout: "200ms" });
  const holder = await hold();
  await applyOnce(holder, event("one"));
  assert.equal((await once.process(event("one"), effectOf("one"))).status, 409);
  assert.equal((await once.lookup("one")).status, 409);
  await holder.query("rollback");
  assert.equal((await once.lookup("one")).status, 404);
});

claim("a commit that fails is in doubt", async ({ pool, once }) => {
  await pool.query("alter table effects add constraint once unique (key) deferrable initially deferred");
  await pool.query("insert into effects values ('one')");
  assert.equal((await once.process(event("one"), effectOf("one"))).status, 500);
  assert.equal((await once.lookup("one")).status, 404);
});

claim("an effect that hides its failure is not processed", async ({ once }) => {
  const hides = (client: pg.PoolClient) => client.query("select 1 / 0").catch(() => {});
  assert.equal((await once.process(event("one"), hides)).status, 503);
  assert.equal((await once.lookup("one")).status, 404);
});

claim("an effect that rolls back by itself is not processed", async ({ once, effects }) => {
  const effect = effectOf("one");
  const hides = (client: pg.PoolClient) => client.query("select 1 / 0").catch(() => client.query("rollback"));
  const repeats = async (client: pg.PoolClient) => {
    await effect(client);
    await client.query("rollback");
    await client.query("begin");
    await effect(client);
  };
  for (const rollsBack of [hides, repeats]) {
    assert.equal((await once.process(event("one"), rollsBack)).status, 503);
    assert.deepEqual([await effects(), (await once.lookup("one")).status], [[], 404]);
  }
});

claim("an effect may roll back to a savepoint", async ({ once, effects }) => {
  const tries = async (client: pg.PoolClient) => {
    await client.query("savepoint here");
    await client.query("select 1 / 0").catch(() => client.query("rollback to savepoint here"));
    await effectOf("one")(client);
  };
  assert.equal((await once.process(event("one"), tries)).status, 200);
  assert.deepEqual([await effects(), (await once.lookup("one")).status], [["one"], 200]);
});

claim("an effect that waits too long is not busy", async ({ pool, hold }) => {
  const once = new Once(pool, { lockTimeout: "200ms" });
  const holder = await hold();
  await holder.query("lock table effects");
  assert.equal((await once.process(event("one"), effectOf("one"))).status, 503);
  await holder.query("rollback");
  assert.equal((await once.lookup("one")).status, 404);
});

claim("a connection that is lost is not processed, and ends nobody", async ({ once }) => {
  const loses = async (client: pg.PoolClient) => {
    await client.query("select pg_terminate_backend(pg_backend_pid())").catch(() => {});
    await new Promise((resolve) => setImmediate(resolve));
    await client.query("select 1");
  };
  assert.equal((await once.process(event("one"), loses)).status, 503);
  assert.equal((await once.lookup("one")).status, 404);
});

claim("a database that is away is not processed", async () => {
  const once = new Once(new pg.Pool({ connectionString: "postgresql://127.0.0.1:1/none" }));
  assert.equal((await once.process(event("one"), effectOf("one"))).status, 503);
});

claim("old keys are pruned a few at a time", async ({ pool }) => {
  for (const [key, days] of [["oldest", 40], ["older", 35], ["old", 31], ["young", 29]]) {
    const insert = "insert into processed_events values ($1, '', null, null, now() - make_interval(days => $2))";
    await pool.query(insert, [key, days]);
  }
  assert.equal(await prune(pool, 30 * DAY, 2), 2);
  const { rows } = await pool.query("select key from processed_events order by key");
  assert.deepEqual(rows.map(({ key }) => key), ["old", "young"]);
  assert.equal(await prune(pool, 30 * DAY), 1);
});
