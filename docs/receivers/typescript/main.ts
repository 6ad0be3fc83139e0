// A receiver that honours Oncebox's key, on node:http and pg.
//
// Enters: POST /events, one copy of an event. Leaves: 2xx after the key and the effect were committed together.
// Must hold: however many copies arrive, in whatever order and at the same time, a key has its effect once.
// The effect: an account's balance grows by the event's amount. GET /events/{key} says whether that has happened.
//
// Environment: DATABASE_URL, LISTEN (127.0.0.1:8082), WEBHOOK_SECRET (one or more, separated by spaces; none: no check).

import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import pg from "pg";

const LARGEST_BODY = 8 << 20;
const TOLERANCE_SECONDS = 300;
// Postgres: lock_timeout ran out.
const LOCK_NOT_AVAILABLE = "55P03";

const TABLES = `
  create table if not exists processed_events (
    key text primary key,
    digest text not null,
    source text,
    fence bigint,
    received_at timestamptz not null default now());
  create table if not exists accounts (name text primary key, balance bigint not null);
`;
const INSERT_KEY = `
  insert into processed_events (key, digest, source, fence) values ($1, $2, $3, $4)
  on conflict (key) do nothing
`;
const CREDIT = `
  insert into accounts (name, balance) values ($1, $2)
  on conflict (name) do update set balance = accounts.balance + excluded.balance
`;

interface Delivery {
  key: string;
  body: Buffer;
  source: string | undefined;
  fence: string | undefined;
  account: string;
  amount: number;
}

interface Answer {
  status: number;
  text: string;
  headers?: Record<string, string>;
}

/** The commit failed, perhaps only its answer: the event is processed, or it is not. */
class OutcomeUnknown extends Error {}

/** A transaction on a connection of its own. Whatever `act` leaves uncommitted is rolled back. */
async function transaction<T>(pool: pg.Pool, act: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  // Postgres may end the connection at any time: what is under way fails, and without a listener so would the process.
  const ended = () => {};
  client.on("error", ended);
  let broken = true;
  try {
    await client.query("begin");
    return await act(client);
  } finally {
    // After a commit this does nothing; a connection that cannot even roll back is closed, which also rolls back.
    broken = await client.query("rollback").then(() => false, () => true);
    client.off("error", ended);
    client.release(broken);
  }
}

/** The key and the effect in one transaction. Returns what to tell the sender. */
function processOnce(pool: pg.Pool, delivery: Delivery): Promise<string> {
  const { key, body, source, fence, account, amount } = delivery;
  const digest = digestOf(body);
  return transaction(pool, async (client) => {
    await client.query("set local lock_timeout = '2s'");
    // A concurrent copy waits here for the transaction that holds the key, and then finds the key taken.
    const inserted = await client.query(INSERT_KEY, [key, digest, source, fence]);
    if (inserted.rowCount === 0) {
      const known = await client.query("select digest from processed_events where key = $1", [key]);
      if (known.rows[0]?.digest === digest) return "seen before\n";
      console.error(`the key ${key} came with another body, of digest ${digest}`);
      return "seen before with other bytes; the first are kept\n";
    }
    await client.query(CREDIT, [account, amount]);
    await client.query("commit").catch((cause) => {
      throw new OutcomeUnknown("commit", { cause });
    });
    return "processed\n";
  });
}

/** Asks the unique index, which also knows the keys of transactions that are still under way. */
function isProcessed(pool: pg.Pool, key: string): Promise<boolean> {
  return transaction(pool, async (client) => {
    await client.query("set local lock_timeout = '100ms'");
    const inserted = await client.query(INSERT_KEY, [key, "", null, null]);
    return inserted.rowCount === 0;
  });
}

function digestOf(body: Buffer): string {
  return `sha-256=:${createHash("sha256").update(body).digest("base64")}:`;
}

/** Standard Webhooks, over the bytes as they came: one of the signatures was made with one of the secrets. */
function isSigned(secrets: Buffer[], headers: IncomingHttpHeaders, body: Buffer, now: number): boolean {
  const [key, timestamp] = [header(headers, "webhook-id"), header(headers, "webhook-timestamp") ?? ""];
  if (!/^\d{1,12}$/.test(timestamp) || Math.abs(now - Number(timestamp)) > TOLERANCE_SECONDS) return false;
  const wanted = secrets.map((secret) => {
    const hmac = createHmac("sha256", secret).update(`${key}.${timestamp}.`).update(body);
    return Buffer.from(`v1,${hmac.digest("base64")}`);
  });
  const given = (header(headers, "webhook-signature") ?? "").split(" ").map((one) => Buffer.from(one));
  return given.some((one) => wanted.some((other) => one.length === other.length && timingSafeEqual(one, other)));
}

function secretsIn(text: string): Buffer[] {
  const secrets = text.split(/\s+/).filter((secret) => secret !== "");
  if (text !== "" && secrets.length === 0) {
    throw new Error("WEBHOOK_SECRET is blank: a secret, or nothing at all for no check");
  }
  return secrets.map((secret) => Buffer.from(secret.replace(/^whsec_/, ""), "base64"));
}

function header(headers: IncomingHttpHeaders, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" ? value : undefined;
}

/** The account and the amount; nothing when the body is not such an event. */
function creditIn(body: Buffer): { account: string; amount: number } | undefined {
  try {
    const { account, amount } = JSON.parse(body.toString("utf8")).data;
    // JSON can hold what UTF-8 and Postgres cannot: half a surrogate pair, the character 0.
    const storable = typeof account === "string" && !/[\0\p{Surrogate}]/u.test(account);
    return storable && Number.isSafeInteger(amount) ? { account, amount } : undefined;
  } catch {
    return undefined;
  }
}

/** The raw bytes; nothing when there are more than anybody should send. */
async function bodyOf(request: IncomingMessage): Promise<Buffer | undefined> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of request as AsyncIterable<Buffer>) {
    length += piece.length;
    if (length > LARGEST_BODY) return undefined;
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

async function post(pool: pg.Pool, secrets: Buffer[], request: IncomingMessage): Promise<Answer> {
  const body = await bodyOf(request);
  if (body === undefined) return { status: 413, text: "", headers: { connection: "close" } };
  if (secrets.length > 0 && !isSigned(secrets, request.headers, body, Date.now() / 1000)) {
    return { status: 401, text: "the signature is not good\n" };
  }
  // `webhook-id` and not `Idempotency-Key`: it is the one that the signature covers.
  const key = header(request.headers, "webhook-id");
  if (!key) return { status: 400, text: "no webhook-id\n" };
  const credit = creditIn(body);
  if (!credit) return { status: 422, text: "no data with account and amount\n" };
  const [source, fence] = [header(request.headers, "oncebox-source"), header(request.headers, "oncebox-fence")];
  return { status: 200, text: await processOnce(pool, { key, body, source, fence, ...credit }) };
}

async function get(pool: pg.Pool, path: string): Promise<Answer> {
  const key = decodeURIComponent(path.slice("/events/".length));
  const processed = await isProcessed(pool, key);
  return processed ? { status: 200, text: "processed\n" } : { status: 404, text: "not processed\n" };
}

function answerTo(trouble: unknown): Answer {
  if (trouble instanceof pg.DatabaseError && trouble.code === LOCK_NOT_AVAILABLE) {
    return { status: 409, text: "this key is being processed\n" };
  }
  console.error(trouble);
  if (trouble instanceof OutcomeUnknown) return { status: 500, text: "perhaps processed\n" };
  return { status: 503, text: "not processed\n", headers: { "retry-after": "1" } };
}

async function route(pool: pg.Pool, secrets: Buffer[], request: IncomingMessage): Promise<Answer> {
  const path = request.url ?? "";
  try {
    if (request.method === "POST" && path === "/events") return await post(pool, secrets, request);
    if (request.method === "GET" && path.startsWith("/events/")) return await get(pool, path);
  } catch (trouble) {
    return answerTo(trouble);
  }
  return { status: 404, text: "" };
}

async function main(): Promise<void> {
  const { DATABASE_URL, LISTEN = "127.0.0.1:8082", WEBHOOK_SECRET = "" } = process.env;
  const pool = new pg.Pool({ connectionString: DATABASE_URL, max: 8, connectionTimeoutMillis: 5000 });
  // An idle connection that breaks would otherwise end the process.
  pool.on("error", (trouble) => console.error(trouble));
  await pool.query(TABLES);
  const secrets = secretsIn(WEBHOOK_SECRET);
  const server = createServer(async (request: IncomingMessage, response: ServerResponse) => {
    const { status, text, headers } = await route(pool, secrets, request);
    response.writeHead(status, { "content-length": Buffer.byteLength(text), ...headers }).end(text);
  });
  const [host, port] = LISTEN.split(/:(?=\d+$)/);
  server.listen(Number(port), host, () => {
    const { address, port } = server.address() as AddressInfo;
    console.log(`listening on ${address}:${port}`);
  });
}

await main();
