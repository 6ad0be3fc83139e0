// The key and the effect in one transaction of PostgreSQL.
//
// Enters: an `Event` and an effect. Leaves: what to answer. Must hold: the key is inserted before anything else, and 2xx is
// answered only when key and effect are committed, by this copy or an earlier one.

import pg from "pg";
import type { Event } from "./event.js";

export const TABLE = `
  create table if not exists processed_events (
    key text primary key,
    digest text not null,
    source text,
    fence bigint,
    received_at timestamptz not null default now());
  create index if not exists processed_events_age on processed_events (received_at);
`;
const INSERT_KEY = `
  insert into processed_events (key, digest, source, fence) values ($1, $2, $3, $4)
  on conflict (key) do nothing
`;
const KNOWN = "select digest, fence from processed_events where key = $1";
const PRUNE = `
  delete from processed_events
   where key in (select key from processed_events where received_at < now() - make_interval(secs => $1)
                  order by received_at limit $2)
`;
// For this transaction alone: another one, begun after a rollback, does not have the key.
const MARK = "select set_config('lock_timeout', $1, true), set_config('oncebox.key', $2, true)";
const IS_MARKED = "select current_setting('oncebox.key', true) is not distinct from $1 as marked";
// Postgres: lock_timeout ran out.
const LOCK_NOT_AVAILABLE = "55P03";

/**
 * `fresh`: the key is new, have the effect. The others have none. `repeat`: the key is known; `conflict`: with other bytes,
 * keep the first; `stale`: from a copy with a higher fence.
 */
export type Applied = "fresh" | "repeat" | "conflict" | "stale";

export interface Answer {
  status: number;
  text: string;
  headers: Record<string, string>;
  /** Whatever went wrong, or was out of the ordinary, for the log. Never sent. */
  cause?: unknown;
}

export interface Options {
  /** As Postgres has it; `2s`. Keep it and the pool's timeout below the workflow's `endpoint.timeout`. */
  lockTimeout?: string;
}

/** Another transaction holds the key. */
class InProgress extends Error {}

/** The commit failed, perhaps only its answer: the event is processed, or it is not. */
class OutcomeUnknown extends Error {}

/** The key came with another body than the first one, which is kept. Answered 200. */
export class OtherBody extends Error {
  constructor({ key, digest }: Event) {
    super(`the key ${key} came with another body, of digest ${digest}; the first is kept`);
  }
}

/** The key came with a lower fence than that of the copy that was processed. Answered 200. */
export class LowerFence extends Error {
  constructor({ key, fence }: Event) {
    super(`the key ${key} came with fence ${fence}, and was processed with a higher one`);
  }
}

/**
 * Inserts the key in the caller's transaction, and commits nothing. Have the effect only after `fresh`.
 * A concurrent copy waits here for the transaction that holds the key, at most for `lock_timeout`.
 */
export async function applyOnce(client: pg.ClientBase, event: Event): Promise<Applied> {
  const inserted = await client.query(INSERT_KEY, [event.key, event.digest, event.source, event.fence?.toString()]);
  if (inserted.rowCount === 1) return "fresh";
  const { rows: [known] } = await client.query<{ digest: string; fence: string | null }>(KNOWN, [event.key]);
  // Pruned since the insert: it was processed, with bytes that nobody knows any more.
  if (known === undefined) return "repeat";
  if (known.digest !== event.digest) return "conflict";
  const isOlder = known.fence !== null && event.fence !== undefined && event.fence < BigInt(known.fence);
  return isOlder ? "stale" : "repeat";
}

/** Forgets the oldest keys, in the caller's transaction. Returns how many they were. */
export async function prune(client: pg.ClientBase | pg.Pool, olderThanSeconds: number, atMost = 1000): Promise<number> {
  return (await client.query(PRUNE, [olderThanSeconds, atMost])).rowCount ?? 0;
}

export class Once {
  constructor(
    private readonly pool: pg.Pool,
    private readonly options: Options = {},
  ) {}

  /** `effect` runs at most once per key that is committed, in the transaction of the key. */
  process(event: Event, effect: (client: pg.PoolClient) => Promise<unknown>): Promise<Answer> {
    return this.transaction(event.key, this.options.lockTimeout ?? "2s", async (client) => {
      const applied = await applyOnce(client, event).catch(isHeld);
      if (applied === "fresh") {
        await effect(client);
        await commit(client, event.key);
      }
      return answerOf(event, applied);
    });
  }

  /** For `endpoint.lookup`. Asks the unique index, which also knows the keys of transactions under way. */
  lookup(key: string): Promise<Answer> {
    return this.transaction(key, "100ms", async (client) => {
      const inserted = await client.query(INSERT_KEY, [key, "", null, null]).catch(isHeld);
      return inserted.rowCount === 0 ? answer(200, "processed\n") : answer(404, "not processed\n");
    });
  }

  /** On a connection of its own. Whatever `act` leaves uncommitted is rolled back. */
  private async transaction(
    key: string,
    lockTimeout: string,
    act: (client: pg.PoolClient) => Promise<Answer>,
  ): Promise<Answer> {
    try {
      const client = await this.pool.connect();
      // A connection that breaks while it is out of the pool would otherwise end the process; its next query fails as well.
      const ignore = () => {};
      client.on("error", ignore);
      try {
        await client.query("begin");
        await client.query(MARK, [lockTimeout, key]);
        return await act(client);
      } finally {
        // After a commit this does nothing; a connection that cannot even roll back is closed, which also rolls back.
        const broken = await client.query("rollback").then(() => false, () => true);
        client.off("error", ignore);
        client.release(broken);
      }
    } catch (trouble) {
      return answerTo(trouble);
    }
  }
}

/** The event is processed in each of these cases, by this copy or another, so that the sender need not come again. */
function answerOf(event: Event, applied: Applied): Answer {
  switch (applied) {
    case "fresh":
      return answer(200, "processed\n");
    case "repeat":
      return answer(200, "seen before\n");
    case "conflict":
      return { ...answer(200, "seen before with other bytes; the first are kept\n"), cause: new OtherBody(event) };
    case "stale":
      return { ...answer(200, "seen before; a newer attempt was processed\n"), cause: new LowerFence(event) };
  }
}

function answer(status: number, text: string): Answer {
  return { status, text, headers: {} };
}

function answerTo(cause: unknown): Answer {
  if (cause instanceof InProgress) return { ...answer(409, "this key is being processed\n"), cause };
  if (cause instanceof OutcomeUnknown) return { ...answer(500, "perhaps processed\n"), cause };
  return { status: 503, text: "not processed\n", headers: { "retry-after": "1" }, cause };
}

/** Of inserting the key: an effect that waits too long is no copy under way. */
function isHeld(cause: unknown): never {
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
  throw code === LOCK_NOT_AVAILABLE ? new InProgress("insert", { cause }) : cause;
}

async function commit(client: pg.PoolClient, key: string): Promise<void> {
  // One that works may have been begun after the transaction of the key was rolled back.
  const { rows: [row] } = await client.query<{ marked: boolean }>(IS_MARKED, [key]);
  if (row?.marked !== true) throw new Error("the effect ended the transaction, and did not say so");
  const { command } = await client.query("commit").catch((cause) => {
    throw new OutcomeUnknown("commit", { cause });
  });
  // Postgres answers the commit of a failed transaction without an error, and rolls back.
  if (command !== "COMMIT") throw new Error("the effect failed, and did not say so");
}
