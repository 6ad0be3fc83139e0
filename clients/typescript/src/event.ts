// What the headers say of an event: its key, and which attempt this is.
//
// Enters: headers and the body's bytes. Leaves: an `Event`, or `Refused`.
// Must hold: a request whose key can be read in two ways is refused, never guessed at.

import { createHash } from "node:crypto";
import { type Headers, isPrintable, values } from "./headers.js";

const LONGEST_KEY = 255;
const STRING = /^ *"((?:[ !#-[\]-~]|\\["\\])*)" *$/;

type Reason = "noKey" | "badKey" | "keysDiffer" | "badNumber" | "digestDiffers";

/** `status` is what to answer. */
export class Refused extends Error {
  readonly status: 400 | 503;

  constructor(readonly reason: Reason) {
    super(`the request is refused: ${reason}`);
    // Bytes that were damaged on the way may come whole the next time; the others will not change.
    this.status = reason === "digestDiffers" ? 503 : 400;
  }
}

export interface Event {
  key: string;
  /** Of the body as it came, in the form of `content-digest`. */
  digest: string;
  event?: string | undefined;
  attempt?: number | undefined;
  fence?: bigint | undefined;
  /** topic/partition/offset */
  source?: string | undefined;
}

/** The key from `webhook-id`, from `Idempotency-Key`, or from both when they say the same. */
export function read(headers: Headers, body: Buffer): Event {
  const plain = atMostOne(headers, "webhook-id", plainKey);
  const quoted = atMostOne(headers, "idempotency-key", quotedKey);
  if (plain !== undefined && quoted !== undefined && plain !== quoted) throw new Refused("keysDiffer");
  return eventOf(plain ?? quoted, headers, body);
}

/** After `verify`: the key from `webhook-id` alone, since the signature does not cover the other header. */
export function readSigned(headers: Headers, body: Buffer): Event {
  return eventOf(atMostOne(headers, "webhook-id", plainKey), headers, body);
}

export function digestOf(body: Buffer): string {
  return `sha-256=:${createHash("sha256").update(body).digest("base64")}:`;
}

function eventOf(key: string | undefined, headers: Headers, body: Buffer): Event {
  if (key === undefined) throw new Refused("noKey");
  const attempt = number(headers, "oncebox-attempt", 2n ** 31n - 1n);
  const fence = number(headers, "oncebox-fence", 2n ** 63n - 1n);
  if (attempt === 0n) throw new Refused("badNumber");
  const digest = digestOf(body);
  const given = values(headers, "content-digest").flatMap((line) => line.split(",")).map((part) => part.trim());
  if (given.some((part) => part.startsWith("sha-256=") && part !== digest)) throw new Refused("digestDiffers");
  const [event, source] = [text(headers, "oncebox-event"), text(headers, "oncebox-source")];
  return { key, digest, event, attempt: attempt === undefined ? undefined : Number(attempt), fence, source };
}

function atMostOne(headers: Headers, name: string, keyIn: (text: string) => string): string | undefined {
  const [value, ...more] = values(headers, name);
  if (more.length > 0) throw new Refused("badKey");
  return value === undefined ? undefined : keyIn(value);
}

function plainKey(text: string): string {
  if (!isPrintable(text) || text.length > LONGEST_KEY) throw new Refused("badKey");
  return text;
}

/** A structured-field string (RFC 8941, 3.3.3): printable ASCII in quotes, a backslash before quote and backslash. */
function quotedKey(text: string): string {
  const string = STRING.exec(text)?.[1];
  if (string === undefined) throw new Refused("badKey");
  return plainKey(string.replace(/\\(.)/g, "$1"));
}

function number(headers: Headers, name: string, largest: bigint): bigint | undefined {
  const [value, ...more] = values(headers, name);
  if (value === undefined) return undefined;
  if (more.length > 0 || !/^\d{1,19}$/.test(value) || BigInt(value) > largest) throw new Refused("badNumber");
  return BigInt(value);
}

function text(headers: Headers, name: string): string | undefined {
  return values(headers, name).join(", ") || undefined;
}
