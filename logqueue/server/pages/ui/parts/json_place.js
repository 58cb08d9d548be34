// Where text stops being JSON, and what was expected there. Browsers word it differently, and not
// all of them say where.

const SPACE = /[ \t\n\r]*/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WORD = /true|false|null/y;
const DEPTH_MAX = 1000;

class Found extends Error {
  constructor(at, message) {
    super(message);
    this.at = at;
  }
}

/**
 * The first place where text is not JSON.
 * @param {string} text
 * @returns {{at: number, message: string}|null} at: characters before it; null for valid JSON
 */
export function problemOf(text) {
  try {
    const end = skip(SPACE, text, value(text, skip(SPACE, text, 0), 0));
    return end === text.length ? null : {at: end, message: "nothing may follow the value"};
  } catch (found) {
    if (found instanceof Found) return {at: found.at, message: found.message};
    throw found;
  }
}

function skip(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : at;
}

function value(text, at, depth) {
  if (depth > DEPTH_MAX) throw new Found(at, "too deeply nested");
  const first = text[at];
  if (first === "{") return object(text, at, depth);
  if (first === "[") return array(text, at, depth);
  if (first === '"') return string(text, at);
  for (const pattern of [NUMBER, WORD]) {
    const end = skip(pattern, text, at);
    if (end > at) return end;
  }
  if (first === undefined) throw new Found(at, "the text ends where a value is expected");
  if (first === "'") throw new Found(at, 'strings need double quotes: "…"');
  throw new Found(at, "a value is expected here");
}

function string(text, start) {
  let at = start + 1;
  for (;;) {
    at = skip(PLAIN, text, at);
    if (text[at] === '"') return at + 1;
    if (text[at] === undefined) throw new Found(start, "this string is never closed");
    if (text[at] !== "\\") throw new Found(at, "line breaks in strings are written as \\n");
    const end = skip(ESCAPE, text, at);
    if (end === at) throw new Found(at, "unknown escape in a string");
    at = end;
  }
}

function array(text, start, depth) {
  let at = skip(SPACE, text, start + 1);
  if (text[at] === "]") return at + 1;
  for (;;) {
    at = skip(SPACE, text, value(text, at, depth + 1));
    if (text[at] === "]") return at + 1;
    if (text[at] !== ",") throw new Found(at, "a comma or ] is expected here");
    at = afterComma(text, at, "]");
  }
}

function object(text, start, depth) {
  let at = skip(SPACE, text, start + 1);
  if (text[at] === "}") return at + 1;
  for (;;) {
    if (text[at] !== '"') throw new Found(at, 'a name in double quotes is expected here: "name"');
    at = skip(SPACE, text, string(text, at));
    if (text[at] !== ":") throw new Found(at, "a colon is expected here");
    at = skip(SPACE, text, value(text, skip(SPACE, text, at + 1), depth + 1));
    if (text[at] === "}") return at + 1;
    if (text[at] !== ",") throw new Found(at, "a comma or } is expected here");
    at = afterComma(text, at, "}");
  }
}

function afterComma(text, comma, close) {
  const at = skip(SPACE, text, comma + 1);
  if (text[at] === close) throw new Found(comma, `no comma may be before ${close}`);
  return at;
}
