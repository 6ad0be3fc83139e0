// The vectors that all kits share, and what the README shows. Run in the kit's folder.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { type Event, type Headers, Refused, TABLE, Unverified } from "../src/index.js";
import { digestOf, read, readSigned, secretIn, verify } from "../src/index.js";

const vectors = JSON.parse(readFileSync("../vectors.json", "utf8"));

/** As `headersDistinct` has them. */
function headersOf(pairs: [string, string][]): Headers {
  const headers: Record<string, string[]> = {};
  for (const [name, value] of pairs) (headers[name] ??= []).push(value);
  return headers;
}

test("secrets", () => {
  for (const { name, text, hex, refused } of vectors.secrets) {
    if (refused) assert.throws(() => secretIn(text), Error, name);
    else assert.equal(secretIn(text).toString("hex"), hex, name);
  }
});

test("signatures", () => {
  for (const { name, secrets, headers, body, now, result } of vectors.signatures) {
    let found = "good";
    try {
      verify(secrets.map(secretIn), headersOf(headers), Buffer.from(body), now);
    } catch (trouble) {
      assert(trouble instanceof Unverified, name);
      found = trouble.reason;
    }
    assert.equal(found, result, name);
  }
});

test("a clock that is no number makes nothing good", () => {
  const good = vectors.signatures.find(({ result }: { result: string }) => result === "good");
  const check = (now: unknown) => () =>
    verify(good.secrets.map(secretIn), headersOf(good.headers), Buffer.from(good.body), now as number);
  check(good.now)();
  for (const now of [NaN, undefined, Infinity]) assert.throws(check(now), { reason: "expired" });
});

test("requests", () => {
  for (const { name, headers, body, fields, ...expected } of vectors.requests) {
    for (const [kind, reader] of [["read", read], ["readSigned", readSigned]] as const) {
      let event: Event | undefined;
      let found: object;
      try {
        event = reader(headersOf(headers), Buffer.from(body));
        found = { key: event.key };
      } catch (trouble) {
        assert(trouble instanceof Refused, name);
        found = { refused: trouble.reason };
      }
      assert.deepEqual(found, expected[kind], `${name}: ${kind}`);
      if (!event) continue;
      for (const [field, value] of Object.entries(fields)) {
        const is: unknown = event[field as keyof Event] ?? null;
        assert.equal(typeof is === "bigint" ? is.toString() : is, value, `${name}: ${field}`);
      }
    }
  }
});

test("digests", () => {
  for (const { body, digest } of vectors.digests) assert.equal(digestOf(Buffer.from(body)), digest);
});

test("headers that are plain strings", () => {
  assert.equal(read({ "Webhook-Id": "a", "idempotency-key": '"a"', via: undefined }, Buffer.from("")).key, "a");
});

test("table", () => {
  const words = (text: string) => text.trim().split(/\s+/);
  assert.deepEqual(words(TABLE), words(vectors.table));
});

test("code in the readme is code that runs", () => {
  const blocks = readFileSync("README.md", "utf8").split("```ts\n").slice(1).map((rest) => rest.split("```")[0]!);
  assert(blocks.length > 0);
  for (const block of blocks) assert(readFileSync("sample/main.ts", "utf8").includes(block), block);
});
