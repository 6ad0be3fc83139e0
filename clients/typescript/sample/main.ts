// A receiver on the kit, node:http and pg; it behaves as docs/receivers/typescript/main.ts does.
//
// Enters: POST /events, one copy of an event. Leaves: 2xx after the key and the effect were committed together.
// The effect: an account's balance grows by the event's amount. GET /events/{key} says whether that has happened.
//
// Environment: DATABASE_URL, LISTEN (127.0.0.1:8082), WEBHOOK_SECRET (one or more, separated by spaces; none: no check).

import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import pg from "pg";
import { type Answer, type Headers, Once, Refused, TABLE, Unverified, readSigned, secretIn, verify } from "../src/index.js";

const LARGEST_BODY = 8 << 20;
const ACCOUNTS = "create table if not exists accounts (name text primary key, balance bigint not null)";
const CREDIT = `
  insert into accounts (name, balance) values ($1, $2)
  on conflict (name) do update set balance = accounts.balance + excluded.balance
`;

async function receive(once: Once, secrets: Buffer[], headers: Headers, body: Buffer): Promise<Answer> {
  try {
    if (secrets.length > 0) verify(secrets, headers, body, Date.now() / 1000);
    const event = readSigned(headers, body);
    const credit = creditIn(body);
    if (!credit) return answer(422, "no data with account and amount\n");
    return await once.process(event, (client) => client.query(CREDIT, credit));
  } catch (trouble) {
    if (trouble instanceof Unverified) return answer(401, "the signature is not good\n");
    if (trouble instanceof Refused) return refusal(trouble);
    throw trouble;
  }
}

function refusal({ reason, status, message }: Refused): Answer {
  return answer(status, reason === "noKey" ? "no webhook-id\n" : `${message}\n`);
}

function answer(status: number, text = "", headers: Record<string, string> = {}): Answer {
  return { status, text, headers: status === 503 ? { "retry-after": "1" } : headers };
}

/** The account and the amount; nothing when the body is not such an event. */
function creditIn(body: Buffer): [string, number] | undefined {
  try {
    const { account, amount } = JSON.parse(body.toString("utf8")).data;
    // JSON can hold what UTF-8 and Postgres cannot: half a surrogate pair, the character 0.
    const storable = typeof account === "string" && !/[\0\p{Surrogate}]/u.test(account);
    return storable && Number.isSafeInteger(amount) ? [account, amount] : undefined;
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

/** Nothing when it is no part of a URL. */
function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

function secretsIn(text: string): Buffer[] {
  const secrets = text.split(/\s+/).filter((one) => one !== "");
  if (text !== "" && secrets.length === 0) {
    throw new Error("WEBHOOK_SECRET is blank: a secret, or nothing at all for no check");
  }
  return secrets.map(secretIn);
}

async function route(once: Once, secrets: Buffer[], request: IncomingMessage): Promise<Answer> {
  const path = request.url ?? "";
  if (request.method === "POST" && path === "/events") {
    const body = await bodyOf(request);
    if (body === undefined) return answer(413, "", { connection: "close" });
    return receive(once, secrets, request.headersDistinct, body);
  }
  if (request.method === "GET" && path.startsWith("/events/")) {
    const key = decoded(path.slice("/events/".length));
    return key === undefined ? answer(400) : once.lookup(key);
  }
  return answer(404);
}

async function main(): Promise<void> {
  const { DATABASE_URL, LISTEN = "127.0.0.1:8082", WEBHOOK_SECRET = "" } = process.env;
  const secrets = secretsIn(WEBHOOK_SECRET);
  const pool = new pg.Pool({ connectionString: DATABASE_URL, max: 8, connectionTimeoutMillis: 5000 });
  // An idle connection that breaks would otherwise end the process.
  pool.on("error", (trouble) => console.error(trouble));
  await pool.query(TABLE + ACCOUNTS);
  const once = new Once(pool);
  const server = createServer(async (request, response) => {
    const { status, text, headers, cause } = await route(once, secrets, request).catch((trouble) => ({
      ...answer(500),
      cause: trouble,
    }));
    if (cause && status !== 409) console.error(status, cause);
    response.writeHead(status, { "content-length": Buffer.byteLength(text), ...headers }).end(text);
  });
  const [host, port] = LISTEN.split(/:(?=\d+$)/);
  server.listen(Number(port), host, () => {
    const { address, port } = server.address() as AddressInfo;
    console.log(`listening on ${address}:${port}`);
  });
}

await main();
