// Controls, tables and times of the page.

const by = (id) => document.getElementById(id);
const controls = document.querySelector('.controls');
const figures = [...document.querySelectorAll('figure[data-chart]')];
const drawings = new IntersectionObserver((entries) => {
  for (const {isIntersecting, target} of entries) {
    if (isIntersecting && !shown.has(target)) draw(makeLive(target));
  }
}, {rootMargin: '400px'});

function zoneName() {
  return chosen.zone;
}

function fill(select, names, all, left) {
  select.append(new Option(all, -1));
  names.forEach((name, place) => select.append(new Option(name || '(empty)', place)));
  if (left) {
    const more = new Option(`${left} more are not listed`, -1);
    more.disabled = true;
    select.append(more);
  }
}

function setUp() {
  for (const kind of ['topic', 'worker', 'tag']) {
    const select = by(`by-${kind}`);
    const names = data.names[kind];
    fill(select, names, 'all', data.left_out[`${kind}_names`]);
    select.parentElement.hidden = names.length < (kind === 'topic' ? 2 : 1);
    select.addEventListener('change', () => { chosen[kind] = Number(select.value); onChoice(); });
  }
  for (const zone of new Set([HOME, data.zone, VIEWER])) {
    by('zone').append(new Option(zone === VIEWER && zone !== HOME ? `${zone} (yours)` : zone, zone));
  }
  by('zone').value = chosen.zone;
  by('zone').addEventListener('change', () => { chosen.zone = by('zone').value; onZone(); });
  for (const id of ['from', 'until']) {
    by(id).addEventListener('change', () => {
      const edges = ['from', 'until'].map((one) => fromLocal(by(one).value));
      if (!edges.some(Number.isNaN) && edges[0] < edges[1]) setRange(edges);
      else onRange();
    });
  }
  by('whole').addEventListener('click', () => setRange(null));
  // Seconds are of no use, and take room, where the range is long.
  for (const id of ['from', 'until']) by(id).step = whole[1] - whole[0] > 2 * HOUR ? 60 : 1;
  controls.hidden = false;
  document.documentElement.classList.add('live-charts');
  figures.forEach((figure) => drawings.observe(figure));
  new ResizeObserver(() => {
    for (const one of shown.values()) {
      const width = one.box.clientWidth;
      if (one.plot && width > 0 && one.plot.width !== width) one.plot.setSize({width, height: HEIGHT});
    }
  }).observe(document.querySelector('main'));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  onZone();
}

function redraw() {
  shown.forEach(draw);
}

function onZone() {
  document.querySelectorAll('time[data-ms]').forEach((time) => { time.textContent = moment(Number(time.dataset.ms)); });
  document.querySelectorAll('.zone').forEach((place) => { place.textContent = zoneName(); });
  redraw();
  onRange();
}

function onChoice() {
  redraw();
  for (const row of document.querySelectorAll('main [data-topic], main [data-worker], main [data-tag], .explained [data-topic]')) {
    row.hidden = ['topic', 'worker', 'tag'].some(
      (kind) => chosen[kind] >= 0 && row.dataset[kind] !== undefined && Number(row.dataset[kind]) !== chosen[kind]);
  }
  for (const body of document.querySelectorAll('main tbody')) {
    const isEmpty = body.rows.length > 0 && [...body.rows].every((row) => row.hidden);
    body.parentElement.classList.toggle('filtered-out', isEmpty);
  }
  onRange();
}

/** What was in the range and choice, in one line; the range in the inputs. */
function onRange() {
  const [from, until] = chosen.range || whole;
  by('from').value = forInput(from);
  by('until').value = forInput(until);
  by('whole').disabled = chosen.range === null;
  const parts = ['topic', 'worker', 'tag'].filter((kind) => chosen[kind] >= 0).map((kind) => `${kind} ${data.names[kind][chosen[kind]]}`);
  if (chosen.range) parts.push(`${moment(from)} to ${moment(until)} ${zoneName()}`);
  by('chosen').textContent = parts.length ? `${parts.join(', ')}: ${sumsOf(from, until)}` : '';
}

function sumsOf(from, until) {
  if (chosen.worker >= 0 && chosen.tag >= 0) return pairText();
  const content = contentOf('flow');
  if (content.why) return content.why;
  const {axis, lines} = content;
  const inside = (_, step) => axis.start + (step + 1) * axis.width > from && axis.start + step * axis.width < until;
  const said = lines.map((line) => `${count(line.values.filter(inside).reduce((a, b) => a + (b || 0), 0))} ${line.name}`);
  const latency = contentOf('run');
  const p95 = latency.why ? [] : latency.lines.filter((line) => line.name === 'p95').map((line) => (
    Math.max(...line.values.filter((value, step) => value !== null && inside(value, step)))));
  if (p95.length && Number.isFinite(p95[0])) said.push(`p95 of a run at most ${duration(p95[0])}`);
  return `${said.join(', ')}. The answers and tables are of the whole range.`;
}

function pairText() {
  const rows = data.pairs.filter(([topic, worker, tag]) => (
    worker === chosen.worker && tag === chosen.tag && (chosen.topic < 0 || topic === chosen.topic)));
  if (!rows.length) return 'this worker had no lease of a job with this tag, or too few to be on this page.';
  const sum = (place) => rows.reduce((total, row) => total + (row[place] || 0), 0);
  const p95 = Math.max(...rows.map((row) => row[6] ?? 0));
  return `${count(sum(3))} claims, ${count(sum(4))} acks, ${count(sum(5))} failures, p95 of a run ${duration(p95)}, over the whole range.`;
}

setUp();
