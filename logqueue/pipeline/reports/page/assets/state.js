// The page's data, what is chosen, and numbers and times in words.

const data = JSON.parse(document.getElementById('data').textContent);
const chosen = {topic: -1, worker: -1, tag: -1, range: null, zone: data.zone};
const HOME = 'UTC';
const VIEWER = Intl.DateTimeFormat().resolvedOptions().timeZone || HOME;
const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;

/** Values as a list, from a list or from places and values. */
function unpacked(packed) {
  if (Array.isArray(packed)) return packed;
  const values = new Array(packed.n).fill(packed.z);
  packed.i.forEach((place, n) => { values[place] = packed.v[n]; });
  return values;
}

function plus(lists) {
  const sum = new Array(lists[0].length).fill(0);
  for (const values of lists) values.forEach((value, n) => { sum[n] += value || 0; });
  return sum;
}

function count(value) {
  if (value === null || value === undefined) return '–';
  const digits = Math.abs(value) < 100 && !Number.isInteger(value) ? (Math.abs(value) < 1 ? 2 : 1) : 0;
  return value.toLocaleString('en', {minimumFractionDigits: digits, maximumFractionDigits: digits});
}

function shortCount(value) {
  for (const [size, letter] of [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) {
    if (Math.abs(value) >= size) return Number((value / size).toPrecision(3)) + letter;
  }
  return String(Number(value.toPrecision(3)));
}

function duration(value) {
  if (value === null || value === undefined) return '–';
  if (value < SECOND) return `${value >= 10 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)} ms`;
  if (value < MINUTE) return `${Number((value / SECOND).toFixed(value < 10 * SECOND ? 2 : 1))} s`;
  const pair = (amount, unit, small, rest) => {
    const left = amount % small;
    return `${Math.floor(amount / small)} ${unit}${left ? ` ${left} ${rest}` : ''}`;
  };
  if (value < HOUR) return pair(Math.round(value / SECOND), 'min', 60, 's');
  if (value < DAY) return pair(Math.round(value / MINUTE), 'h', 60, 'min');
  if (value < 100 * DAY) return pair(Math.round(value / HOUR), 'd', 24, 'h');
  return `${count(Math.round(value / DAY))} d`;
}

function span(value) {
  for (const [size, unit] of [[DAY, 'd'], [HOUR, 'h'], [MINUTE, 'min']]) {
    if (value >= size && value % size === 0) return `${value / size} ${unit}`;
  }
  return duration(value);
}

/** Year, month, day, hour, minute and second of a time in the chosen zone, as texts. */
const formats = new Map();
function partsOf(ms) {
  if (!formats.has(chosen.zone)) {
    formats.set(chosen.zone, new Intl.DateTimeFormat('en-CA', {
      timeZone: chosen.zone, hourCycle: 'h23', year: 'numeric', month: '2-digit', day: '2-digit',
      hour: '2-digit', minute: '2-digit', second: '2-digit',
    }));
  }
  return Object.fromEntries(formats.get(chosen.zone).formatToParts(ms).map((part) => [part.type, part.value]));
}

function moment(ms) {
  const at = partsOf(ms);
  const seconds = at.second === '00' ? '' : `:${at.second}`;
  return `${at.year}-${at.month}-${at.day} ${at.hour}:${at.minute}${seconds}`;
}

/** As an input for a local time has it; inputs without seconds get them cut off. */
function forInput(ms) {
  return whole[1] - whole[0] > 2 * HOUR ? local(ms).slice(0, 16) : local(ms);
}

function local(ms) {
  const at = partsOf(ms);
  return `${at.year}-${at.month}-${at.day}T${at.hour}:${at.minute}:${at.second}`;
}

/** The time in the chosen zone that an input for a local time holds; NaN for none. */
function fromLocal(text) {
  const wanted = Date.parse(`${text.length === 16 ? `${text}:00` : text}Z`);
  if (Number.isNaN(wanted)) return NaN;
  let found = wanted;
  // Twice: the offset may differ between the first guess and the time that is meant.
  for (let n = 0; n < 2; n++) found += wanted - Date.parse(`${local(found)}Z`);
  return found;
}

const whole = [data.start, data.start + data.width * data.count];
