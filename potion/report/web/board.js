// The leaderboard with its filters, and two curves for each scenario.
const hidden = new Set();
const SHARES = [...new Map(placed(RUNS).filter((run) => run.known).map((run) => [shareOf(run.known, run.poisoned), run.known === 1 ? 0 : run.known / run.poisoned]))]
  .sort((a, b) => a[1] - b[1]).map(([share]) => share);
const FILTERS = {
  suite: { all: 'all suites', values: DATA.suites, of: (run) => DATA.suites[run.suite] },
  attack: { all: 'all attacks', values: DATA.attacks, of: (run) => DATA.attacks[run.attack] },
  poisoned: { all: 'any number', values: [...new Set(RUNS.map((run) => run.poisoned))].sort((a, b) => a - b).map(String), of: (run) => String(run.poisoned) },
  share: { all: 'all shares', values: SHARES, of: (run) => shareOf(run.known, run.poisoned) },
};

function chosen(names) {
  const wanted = names.map((name) => [FILTERS[name], byId(name).value]).filter(([, value]) => value !== '');
  return placed(RUNS).filter((run) => wanted.every(([filter, value]) => filter.of(run) === value));
}

function showTable() {
  const runs = chosen(Object.keys(FILTERS));
  const rows = leaderboard(runs);
  const number = (value, text, ...more) => el('td', { class: 'number', 'data-value': value }, text, ...more);
  byId('leaderboard').tBodies[0].replaceChildren(...rows.map((row) => {
    const whole = row.cells === row.all;
    const measure = (k, format) => {
      const { mean: middle, deviation: spread } = row.measures[k];
      const text = whole ? format(middle) : `(${format(middle)})`;
      return number(middle, text, ...(spread === null ? [] : [el('small', {}, `± ${spread.toFixed(1)}`)]));
    };
    const [least, most] = row.seeds;
    return el('tr', whole ? {} : { class: 'partial' },
      el('td', {}, DATA.methods[row.method]),
      measure(HEALED, percent), measure(DAMAGE, signed), measure(CLEAN, percent),
      number(row.cells, whole ? String(row.cells) : `${row.cells} of ${row.all}`),
      number(most, least === most ? String(most) : `${least} to ${most}`),
      number(row.runs, counted(row.runs)));
  }));
  const files = new Set(runs.map((run) => run.file)).size;
  byId('count').textContent = files ? `${counted(files)} of ${counted(RUNS.length)} runs` : 'No run fits this choice.';
  byId('partial').hidden = rows.every((row) => row.cells === row.all);
  sortAgain(byId('leaderboard'));
}

function lines(runs, shares, measure) {
  return [...grouped(runs, (run) => run.method)].sort((a, b) => a[0] - b[0]).map(([method, mine]) => ({
    look: method,
    points: shares.flatMap((known, place) => {
      const values = mine.filter((run) => run.known === known).map((run) => run.scores[measure]);
      if (!values.length) return [];
      const middle = mean(values);
      const seeds = `${values.length} seed${values.length > 1 ? 's' : ''}`;
      return [[place, middle, `${DATA.methods[method]}, ${shareOf(known, runs[0].poisoned)} known: ${middle.toFixed(1)} (${seeds})`]];
    }),
  }));
}

function drawCurve(box, runs, shares, measure, name) {
  const series = lines(runs, shares, measure);
  const values = series.flatMap((line) => line.points.map((point) => point[1]));
  const isHealed = measure === HEALED;
  drawChart(box, {
    label: `${name} against the known share`,
    height: 260,
    x: { low: -0.3, high: shares.length - 0.7, label: 'known poison', ticks: shares.map((known, k) => [k, shareOf(known, runs[0].poisoned)]) },
    y: { low: isHealed ? 0 : Math.floor(Math.min(-1, ...values)), high: isHealed ? Math.max(105, ...values) : Math.ceil(Math.max(1, ...values)), label: name },
    series: series.filter((line) => !hidden.has(line.look)),
    levels: [{ y: isHealed ? 100 : 0, text: isHealed ? 'retrained without any poison' : '' }],
  });
}

function showCurves() {
  const scenarios = grouped(chosen(['suite', 'attack', 'poisoned']).filter((run) => run.known), victimOf);
  const ordered = [...scenarios.values()].sort(([a], [b]) => a.suite - b.suite || a.attack - b.attack || a.poisoned - b.poisoned);
  byId('scenarios').replaceChildren(...ordered.map((runs) => {
    const { suite, attack, poisoned } = runs[0];
    const shares = [...new Set(runs.map((run) => run.known))].sort((a, b) => a - b);
    const boxes = [['healed, %', HEALED], ['damage, points', DAMAGE]].map(([name, measure]) => {
      const box = el('div', { class: 'chart' });
      keepDrawn(box, () => drawCurve(box, runs, shares, measure, name));
      return box;
    });
    const title = `${DATA.attacks[attack]}, ${counted(poisoned)} poisoned`;
    return el('article', {}, el('h3', {}, title, el('small', {}, DATA.suites[suite])), el('div', { class: 'pair' }, ...boxes));
  }));
}

function legendButton(name, look) {
  const button = el('button', { type: 'button', class: 'entry', 'aria-pressed': 'true' }, sample(look), name);
  button.addEventListener('click', () => {
    if (!hidden.delete(look)) hidden.add(look);
    button.setAttribute('aria-pressed', String(!hidden.has(look)));
    showCurves();
  });
  return button;
}

for (const [name, filter] of Object.entries(FILTERS)) {
  byId(name).append(el('option', { value: '' }, filter.all), ...filter.values.map((value) => el('option', { value }, value)));
  byId(name).addEventListener('change', () => {
    showTable();
    if (name !== 'share') showCurves();
  });
}
byId('filters').addEventListener('reset', () => setTimeout(() => { showTable(); showCurves(); }));
byId('legend').append(...DATA.methods.map(legendButton));
byId('leaderboard').tHead.rows[0].cells[1].setAttribute('aria-sort', 'descending');
showTable();
showCurves();
