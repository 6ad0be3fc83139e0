// Signatures as Standard Webhooks has them: HMAC-SHA256 over `webhook-id.webhook-timestamp.body`.
//
// Enters: the headers, the body's bytes as they came, the secrets, and the time. Leaves: nothing, or `Unverified`.
// Must hold: one signature that was made with one of the secrets is enough, and comparing takes the same time
// whatever it finds.

import { createHmac, timingSafeEqual } from "node:crypto";
import { type Headers, isPrintable, values } from "./headers.js";

export const TOLERANCE_SECONDS = 300;

/** `unsigned`: a header is missing or is none. Answer 401: it is tried again. */
export class Unverified extends Error {
  constructor(readonly reason: "unsigned" | "expired" | "wrong") {
    super(`the signature is not good: ${reason}`);
  }
}

/** The bytes of a secret: base64, behind `whsec_` or bare. Throws when it is none. */
export function secretIn(text: string): Buffer {
  const encoded = text.replace(/^whsec_/, "");
  const secret = Buffer.from(encoded, "base64");
  // Node skips what is not base64.
  if (secret.length === 0 || secret.toString("base64") !== encoded) throw new Error("the secret is not base64");
  return secret;
}

/** `secrets`: one of them suffices. `now`: seconds since 1970. */
export function verify(secrets: Buffer[], headers: Headers, body: Buffer, now: number): void {
  const key = one(headers, "webhook-id");
  const timestamp = one(headers, "webhook-timestamp");
  const given = one(headers, "webhook-signature").split(" ").map((text) => Buffer.from(text));
  if (!/^\d{1,12}$/.test(timestamp)) throw new Unverified("unsigned");
  // A clock that is no number is refused too.
  if (!(Math.abs(Math.floor(now) - Number(timestamp)) <= TOLERANCE_SECONDS)) throw new Unverified("expired");
  const wanted = secrets.map((secret) => {
    const hmac = createHmac("sha256", secret).update(`${key}.${timestamp}.`).update(body);
    return Buffer.from(`v1,${hmac.digest("base64")}`);
  });
  // All pairs, so that the first match does not end the comparing.
  const matches = given.flatMap((text) => wanted.filter((other) => isSame(text, other)));
  if (matches.length === 0) throw new Unverified("wrong");
}

function isSame(one: Buffer, other: Buffer): boolean {
  return one.length === other.length && timingSafeEqual(one, other);
}

function one(headers: Headers, name: string): string {
  const [value, ...more] = values(headers, name);
  if (value === undefined || more.length > 0 || !isPrintable(value)) throw new Unverified("unsigned");
  return value;
}
