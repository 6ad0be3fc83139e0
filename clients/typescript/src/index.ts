// What an endpoint needs to apply each event of Oncebox once. In reading order: signature, event, once.
//
// Bytes and headers enter, `verify` says whether to believe them, `read` takes the key out, and `Once.process` has the
// effect in the transaction that also holds the key.

export { type Headers } from "./headers.js";
export { TOLERANCE_SECONDS, Unverified, secretIn, verify } from "./signature.js";
export { type Event, Refused, digestOf, read, readSigned } from "./event.js";
export { type Answer, type Applied, LowerFence, Once, type Options, OtherBody, TABLE, applyOnce, prune } from "./once.js";
