// Headers as node:http gives them, looked up without regard to case.
//
// Must hold: a header that came twice is never taken for one that came once. `request.headers` joins the two with a comma,
// which may also be part of a key: pass `request.headersDistinct`.

export type Headers = Record<string, string | string[] | undefined>;

const PRINTABLE = /^[ -~]+$/;

export function isPrintable(text: string): boolean {
  return PRINTABLE.test(text);
}

/** All values of a header. */
export function values(headers: Headers, name: string): string[] {
  return Object.entries(headers)
    .filter(([given]) => given.toLowerCase() === name)
    .flatMap(([, value]) => value ?? []);
}
