// Charts over time that can be zoomed: one range, one cursor and one choice for all of them.

const HEIGHT = 210;
const DURATION_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500,
  ...[1, 2, 5, 10, 15, 30].map((n) => n * SECOND), ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE),
  ...[1, 2, 3, 6, 12].map((n) => n * HOUR), ...[1, 2, 7, 14, 28, 56, 112, 364].map((n) => n * DAY)];
const RUNGS = [1, 10, 100, SECOND, 10 * SECOND, MINUTE, 10 * MINUTE, HOUR, 10 * HOUR, 4 * DAY, 40 * DAY, 400 * DAY];
const sync = uPlot.sync('report');
const shown = new Map();

function colour(look) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${look}`).trim();
}

/** What a chart draws for what is chosen: lines on an axis of time, or why there are none. */
function contentOf(name) {
  const kind = data.charts[name];
  const {topic, worker, tag} = chosen;
  if (worker >= 0 && tag >= 0) return {why: 'Over time, choose a worker or a tag. What this worker did with this tag is said above.'};
  if (worker >= 0 || tag >= 0) return ofPart(name, worker >= 0 ? 'worker' : 'tag', worker >= 0 ? worker : tag);
  const found = kind.of.find(([place]) => place === topic);
  if (!found) {
    const isThere = topic < data.drawn;
    return {why: isThere ? kind.empty : 'This page has charts of the topics with the most jobs only; the tables have this one.'};
  }
  const lines = found[1].map((line) => ({...line, values: unpacked(line.values)}));
  if (!lines.some((line) => line.values.some((value) => (kind.log ? value !== null : value)))) return {why: kind.empty};
  return {lines, axis: data, unit: kind.unit, note: data.width > data.bucket ? `Steps of ${span(data.width)}.` : ''};
}

function ofPart(name, kind, place) {
  const rows = data.parts[kind].filter((row) => row.of === place && (chosen.topic < 0 || row.topic === chosen.topic));
  const noRows = {why: `No data over time for this ${kind} here.`};
  const counts = (columns) => columns.map(([column, label, look, form]) => (
    {name: label, look, form, values: plus(rows.map((row) => unpacked(row[column])))}));
  const axis = data.parts;
  if (name === 'flow') {
    if (!rows.length) return noRows;
    const first = kind === 'tag' ? [['appended', 'in: appended', 'a', 'area']] : [['claims', 'claims', 'a', 'area']];
    return {lines: counts([...first, ['acks', 'acks', 'c', 'stairs'], ['failures', 'failures', 'b', 'stairs']]), axis, unit: `of this ${kind}, per {step}`};
  }
  if (name === 'failures') {
    if (!rows.length) return noRows;
    return {lines: counts([['failures', 'leases without an ack', 'b', 'area']]), axis, unit: `of this ${kind}, per {step}`};
  }
  if (name === 'run' || (name === 'wait' && kind === 'tag')) {
    const lines = percentilesOf(rows, kind, name);
    return lines.length ? {lines, axis, unit: data.charts[name].unit} : noRows;
  }
  return {why: `Not counted by ${kind}.`};
}

function percentilesOf(rows, kind, name) {
  if (kind === 'worker') {
    return rows.slice(0, 6).map((row, n) => ({
      name: rows.length > 1 ? `p95 in ${data.names.topic[row.topic]}` : 'p95', look: 'abcdef'[n], form: 'line', values: unpacked(row.p95_run)}));
  }
  const measured = rows.filter((row) => row[name]);
  if (measured.length === 1) {
    return ['p50', 'p95', 'p99'].map((label, n) => ({name: label, look: 'abe'[n], form: 'line', values: unpacked(measured[0][name][n])}));
  }
  return measured.slice(0, 6).map((row, n) => (
    {name: `p95 in ${data.names.topic[row.topic]}`, look: 'abcdef'[n], form: 'line', values: unpacked(row[name][1])}));
}

/** Columns as uPlot takes them: times in seconds, and one point more where the last step ends. */
function columnsOf(lines, axis) {
  const times = Array.from({length: axis.count + 1}, (_, n) => (axis.start + n * axis.width) / SECOND);
  const drawn = [];
  let floor = null;
  for (const line of lines) {
    let values = line.values;
    if (line.form === 'stack') {
      values = floor ? plus([floor, values]) : values.map((value) => value || 0);
      floor = values;
    }
    drawn.push([...values, line.form === 'line' ? null : values[values.length - 1]]);
  }
  return [times, ...drawn];
}

function axisOptions() {
  // All ticks keep their texts; by default uPlot leaves some of a logarithmic axis without.
  return {filter: (_, ticks) => ticks, stroke: colour('soft'), grid: {stroke: colour('grid'), width: 1}, ticks: {show: false}, font: '11px system-ui, sans-serif'};
}

function timeAxis() {
  const text = (seconds, step) => {
    const at = partsOf(seconds * SECOND);
    const day = `${Number(at.day)} ${['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'][at.month - 1]}`;
    if (step >= 86400) return day;
    const clock = `${at.hour}:${at.minute}${step < 60 ? `:${at.second}` : ''}`;
    return clock.startsWith('00:00') ? day : clock;
  };
  return {...axisOptions(), size: 26, space: 74, values: (_, ticks, _axis, _space, step) => {
    const texts = ticks.map((tick) => text(tick, step));
    if (texts.length && texts.every((one) => one.includes(':'))) texts[0] = `${text(ticks[0], 86400)} ${texts[0]}`;
    return texts;
  }};
}

function optionsOf(width, extra) {
  return {
    width, height: HEIGHT, legend: {show: false}, padding: [8, 26, 0, 0],
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * SECOND), chosen.zone),
    cursor: {
      y: false, points: {size: 6}, drag: {x: true, y: false, setScale: false},
      sync: {key: sync.key, setSeries: false, scales: ['x', null]},
      bind: {dblclick: () => () => { setRange(null); return null; }},
    },
    ...extra,
    hooks: {
      ...extra.hooks,
      setSelect: [(plot) => {
        const {left, width: wide} = plot.select;
        if (wide < 4) return;
        const edges = [left, left + wide].map((at) => {
          const step = Math.round((plot.posToVal(at, 'x') * SECOND - data.start) / data.width);
          return data.start + step * data.width;
        });
        plot.setSelect({left: 0, top: 0, width: 0, height: 0}, false);
        setRange(edges);
      }],
    },
  };
}

function linesOptions(content, kind, width, onCursor) {
  const {lines} = content;
  const isDuration = kind.axis === 'duration';
  const values = lines.flatMap((line) => line.values).filter((value) => value > 0);
  const low = values.length ? values.reduce((a, b) => Math.min(a, b)) : 1;
  const high = values.length ? values.reduce((a, b) => Math.max(a, b)) : 1;
  const isLog = kind.log && high >= 100 * low;
  const y = isLog
    ? {distr: 3, range: (_, a, b) => [Math.max(1, (a || 1) / 1.5), Math.max((b || 10) * 1.5, 10)]}
    : {range: (_, a, b) => [0, Math.max((b || 0) * 1.08, isDuration ? 10 : 1)]};
  const show = isDuration ? duration : shortCount;
  return optionsOf(width, {
    scales: {x: {time: true}, y},
    axes: [timeAxis(), {...axisOptions(), size: 62, space: 34, incrs: isDuration && !isLog ? DURATION_STEPS : undefined,
      splits: isLog ? (_, __, a, b) => RUNGS.filter((rung) => rung >= a && rung <= b) : undefined,
      values: (_, ticks) => ticks.map((tick) => (tick === null ? '' : tick === 0 ? '0' : show(tick)))}],
    series: [{}, ...lines.map(seriesOf)],
    bands: lines.flatMap((line, n) => (line.form === 'stack' && n > 0 && lines[n - 1].form === 'stack' ? [{series: [n + 1, n]}] : [])),
    hooks: {setCursor: [(plot) => onCursor(plot.cursor.idx ?? null)]},
  });
}

function seriesOf(line) {
  const stroke = colour(line.look);
  const isFilled = line.form === 'area' || line.form === 'stack';
  const alpha = line.form === 'stack' ? 50 : 16;
  return {
    label: line.name, stroke, width: line.form === 'stack' ? 1 : 1.75, spanGaps: false,
    fill: isFilled ? `color-mix(in srgb, ${stroke} ${alpha}%, transparent)` : undefined,
    dash: line.look === 'b' && !isFilled ? [6, 3] : line.look === 'e' && !isFilled ? [2, 4] : undefined,
    paths: line.form === 'line' ? undefined : uPlot.paths.stepped({align: 1}),
    points: line.form === 'line' ? {show: true, size: 5, fill: stroke, filter: (plot, n) => lonely(plot.data[n])} : {show: false},
  };
}

/** Places of values without neighbours, which only points show. */
function lonely(values) {
  const isThere = (n) => values[n] !== null && values[n] !== undefined;
  return values.map((_, n) => n).filter((n) => isThere(n) && !isThere(n - 1) && !isThere(n + 1));
}

/** Rows of a heatmap: how long from and to, and how many in each step. */
function heatOf(metric) {
  if (chosen.worker >= 0 || chosen.tag >= 0) return {why: 'Not counted by worker or tag.'};
  const rows = new Map();
  for (const [topic, name, low, high, steps, counts] of data.heat.cells) {
    if (name !== metric || (chosen.topic >= 0 && topic !== chosen.topic)) continue;
    if (!rows.has(low)) rows.set(low, {low: Math.max(low, 0.5), high: high ?? low * 2, cells: new Map()});
    const {cells} = rows.get(low);
    steps.forEach((step, n) => cells.set(step, (cells.get(step) || 0) + counts[n]));
  }
  const found = [...rows.values()].sort((a, b) => a.low - b.low);
  if (!found.length) return {why: data.left_out.heat ? 'Nothing measured, or left out: this page has histograms of the topics with the most jobs only.' : 'Nothing measured.'};
  return {rows: found, axis: data.heat, note: data.left_out.heat && chosen.topic < 0 ? `Without ${data.left_out.heat} of ${data.topics} topics.` : ''};
}

function heatOptions(content, width, onCursor) {
  const {rows, axis} = content;
  const top = rows.reduce((best, row) => Math.max(best, ...row.cells.values()), 1);
  const looks = ['h1', 'h2', 'h3', 'h4', 'h5'].map(colour);
  const level = (value) => looks[Math.min(4, Math.floor((Math.log(value) / Math.log(top + 1)) * 5))] ?? looks[0];
  const low = rows[0].low, high = rows[rows.length - 1].high;
  return optionsOf(width, {
    scales: {x: {time: true}, y: {distr: 3, range: () => [low, Math.max(high, low * 10)]}},
    axes: [timeAxis(), {...axisOptions(), size: 62, splits: () => RUNGS.filter((rung) => rung >= low && rung <= Math.max(high, low * 10)),
      values: (_, ticks) => ticks.map(duration)}],
    series: [{}, {show: true, stroke: 'transparent', points: {show: false}}],
    hooks: {
      draw: [(plot) => {
        const {ctx, bbox} = plot;
        ctx.save();
        ctx.beginPath();
        ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
        ctx.clip();
        for (const row of rows) {
          const [above, below] = [row.high, row.low].map((value) => Math.round(plot.valToPos(value, 'y', true)));
          for (const [step, value] of row.cells) {
            const [left, right] = [step, step + 1].map((n) => Math.round(plot.valToPos((axis.start + n * axis.width) / SECOND, 'x', true)));
            ctx.fillStyle = level(value);
            ctx.fillRect(left, above, Math.max(right - left, 1), Math.max(below - above, 1));
          }
        }
        ctx.restore();
      }],
      setCursor: [(plot) => {
        const step = plot.cursor.idx ?? null;
        const value = step === null || plot.cursor.top < 0 ? null : plot.posToVal(plot.cursor.top, 'y');
        const row = value === null ? null : rows.find((one) => value >= one.low && value < one.high);
        onCursor(step, row && `${duration(row.low < 1 ? 0 : row.low)} to ${duration(row.high)}: ${count(row.cells.get(step) || 0)}`);
      }],
    },
  });
}

/** The live form of a figure, in place of its drawing. */
function makeLive(figure) {
  const name = figure.dataset.chart;
  const isHeat = name.startsWith('heat-');
  const kind = data.charts[name] || {axis: 'count', title: figure.querySelector('b').textContent};
  const still = [...figure.children].filter((part) => part.tagName !== 'FIGCAPTION');
  still.forEach((part) => part.classList.add('still'));
  const caption = figure.querySelector('figcaption');
  const unit = caption.querySelector('span') || caption.appendChild(document.createElement('span'));
  const live = make('div', 'live'), legend = make('ul', 'legend'), box = make('div', 'canvas');
  const note = make('p', 'note'), table = make('details', ''), summary = make('summary', '', 'Numbers');
  table.append(summary);
  box.tabIndex = 0;
  box.setAttribute('role', 'group');
  box.setAttribute('aria-label', `${kind.title}, chart over time: arrow keys move, plus and minus zoom, Escape shows the whole range`);
  live.append(legend, box, note, table);
  figure.append(live);
  const one = {figure, name, isHeat, kind, unit, legend, box, note, table, plot: null, content: null};
  box.addEventListener('keydown', (event) => onKey(event, one));
  table.addEventListener('toggle', () => fillTable(one));
  shown.set(figure, one);
  return one;
}

function make(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function draw(one) {
  one.plot?.destroy();
  one.plot = null;
  const content = one.content = one.isHeat ? heatOf(one.name.slice(5)) : contentOf(one.name);
  one.box.replaceChildren();
  one.legend.replaceChildren();
  one.note.textContent = content.note || '';
  one.note.hidden = !content.note;
  one.box.hidden = one.table.hidden = Boolean(content.why);
  one.table.open = one.table.open && !content.why;
  if (content.why) {
    one.note.hidden = false;
    one.note.textContent = content.why;
    return;
  }
  one.unit.textContent = (one.isHeat ? `how many per {step}, by how long` : content.unit).replace('{step}', span(content.axis.width));
  const width = Math.max(one.box.clientWidth, 200);
  const onCursor = (step, said) => readOut(one, step, said);
  const options = one.isHeat ? heatOptions(content, width, onCursor) : linesOptions(content, one.kind, width, onCursor);
  const columns = one.isHeat
    ? columnsOf([{form: 'stairs', values: new Array(content.axis.count).fill(1)}], content.axis) : columnsOf(content.lines, content.axis);
  one.plot = new uPlot(options, columns, one.box);
  const [from, until] = chosen.range || whole;
  one.plot.setScale('x', {min: from / SECOND, max: until / SECOND});
  makeLegend(one);
  fillTable(one);
}

function makeLegend(one) {
  one.when = make('li', 'when');
  one.when.hidden = true;
  const lines = one.isHeat ? [] : one.content.lines;
  one.values = lines.map((line) => {
    const item = make('li'), key = make('i', `key ${line.look} ${line.form}`), value = make('b');
    item.append(key, `${line.name} `, value);
    one.legend.append(item);
    return value;
  });
  one.legend.append(one.when);
}

function readOut(one, step, said) {
  const axis = one.content.axis;
  const isThere = step !== null && step >= 0 && step < axis.count;
  one.when.hidden = !isThere;
  const show = one.kind.axis === 'duration' ? duration : count;
  one.values.forEach((value, n) => { value.textContent = isThere ? show(one.content.lines[n].values[step]) : ''; });
  if (isThere) one.when.textContent = `${moment(axis.start + step * axis.width)}${said ? ` · ${said}` : ''}`;
}

const ROWS_MAX = 500;
function fillTable(one) {
  one.table.querySelector('.scroll')?.remove();
  if (!one.table.open || !one.plot) return;
  const {axis, lines, rows} = one.content;
  const [from, until] = chosen.range || whole;
  const names = one.isHeat ? rows.map((row) => `${duration(row.low < 1 ? 0 : row.low)} to ${duration(row.high)}`) : lines.map((line) => line.name);
  const table = make('table', 'numbers'), head = table.createTHead().insertRow(), body = table.createTBody();
  [`from (${zoneName()}), ${span(axis.width)} each`, ...names].forEach((name, n) => {
    const cell = make('th', n ? 'n' : '', name);
    cell.scope = 'col';
    head.append(cell);
  });
  const show = one.kind.axis === 'duration' && !one.isHeat ? duration : count;
  let left = 0;
  for (let step = 0; step < axis.count; step++) {
    const at = axis.start + step * axis.width;
    if (at + axis.width <= from || at >= until) continue;
    if (body.rows.length === ROWS_MAX) { left += 1; continue; }
    const row = body.insertRow();
    row.insertCell().textContent = moment(at);
    for (const value of one.isHeat ? rows.map((of) => of.cells.get(step) || 0) : lines.map((line) => line.values[step])) {
      const cell = row.insertCell();
      cell.className = 'n';
      cell.textContent = show(value);
    }
  }
  const scroll = make('div', 'scroll');
  scroll.tabIndex = 0;
  scroll.setAttribute('role', 'region');
  scroll.setAttribute('aria-label', 'table');
  if (left) table.createCaption().textContent = `The first ${ROWS_MAX} steps; ${count(left)} more: zoom in to see them.`;
  scroll.append(table);
  one.table.append(scroll);
}

function onKey(event, one) {
  if (!one.plot || event.ctrlKey || event.altKey || event.metaKey) return;
  const [from, until] = chosen.range || whole;
  const axis = one.content.axis;
  const place = one.plot.cursor.idx ?? Math.round(((from + until) / 2 - axis.start) / axis.width);
  const middle = axis.start + (place + 0.5) * axis.width;
  const pan = (part) => setRange([from + part * (until - from), until + part * (until - from)]);
  const zoom = (times) => setRange([middle - (middle - from) * times, middle + (until - middle) * times]);
  const moves = {
    ArrowLeft: () => (event.shiftKey ? pan(-0.25) : moveTo(one, place - 1)),
    ArrowRight: () => (event.shiftKey ? pan(0.25) : moveTo(one, place + 1)),
    '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), Escape: () => setRange(null), 0: () => setRange(null),
  };
  const move = moves[event.key];
  if (!move) return;
  event.preventDefault();
  move();
}

function moveTo(one, place) {
  const axis = one.content.axis;
  const step = Math.min(Math.max(place, 0), axis.count - 1);
  const left = one.plot.valToPos((axis.start + step * axis.width) / SECOND, 'x');
  one.plot.setCursor({left: Math.max(left, 0), top: one.plot.bbox.height / devicePixelRatio / 2});
}

/** Show this range on all charts; null for all there is. */
function setRange(range) {
  const [first, last] = whole;
  if (range) {
    const least = Math.max(data.width, 1);
    let [from, until] = range;
    if (until - from < least) until = from + least;
    if (until - from >= last - first) range = null;
    else if (from < first) range = [first, first + until - from];
    else if (until > last) range = [last - (until - from), last];
    else range = [from, until];
  }
  chosen.range = range;
  const [from, until] = range || whole;
  for (const one of shown.values()) {
    one.plot?.setScale('x', {min: from / SECOND, max: until / SECOND});
    if (one.plot) fillTable(one);
  }
  onRange();
}
