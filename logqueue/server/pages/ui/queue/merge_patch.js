// JSON merge patches (RFC 7386): what turns one config into another, and what a patch makes of one.

/** The patch that turns one object into another. Members that are missing afterwards become null. */
export function patchOf(before, after) {
  const patch = {};
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const from = before[name] ?? null;
    const to = after[name] ?? null;
    if (JSON.stringify(from) === JSON.stringify(to)) continue;
    patch[name] = isObject(from) && isObject(to) ? patchOf(from, to) : to;
  }
  return patch;
}

/** An object with a patch applied; null removes a member. */
export function patched(target, patch) {
  const next = isObject(target) ? {...target} : {};
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) next[name] = null;
    else next[name] = isObject(value) ? patched(next[name], value) : value;
  }
  return next;
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
