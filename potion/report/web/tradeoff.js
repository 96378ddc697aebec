// Where the search stops for a rho, what that does, and the command for it.
const TOLERANCE = 1e-9; // as in the search: 7/50 counts as 0.2 of 35/50

function shellWord(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\"'\"'")}'`;
}

function stopFor(rho) {
  const goal = rho * DATA.known_accuracy + TOLERANCE;
  return DATA.trace.find(([, , known]) => known / 100 <= goal);
}

function nearestClean(s) {
  const measured = DATA.curve.filter(([, , clean]) => clean !== null);
  const distance = ([place]) => Math.abs(Math.log(place / s));
  return measured.reduce((best, point) => (best === null || distance(point) < distance(best) ? point : best), null);
}

// Round values of s: powers of ten, or an even row where the curve spans less than that.
function placesOfS(low, high) {
  if (high - low < 1) return ticksBetween(10 ** low, 10 ** high, 5).map((s) => [Math.log10(s), String(s)]);
  const powers = [];
  for (let k = Math.ceil(low); k <= high; k += 1) powers.push([k, String(Number((10 ** k).toPrecision(1)))]);
  return powers;
}

function drawTradeoff(rho, stop) {
  const last = DATA.trace.at(-1)[0];
  const tip = (name, s, value) => `${name}: ${percent(value)} at s = ${s.toPrecision(3)}`;
  const known = DATA.trace.map(([s, weights, value]) => [Math.log10(s), value, `${tip('known poison', s, value)}, ${counted(weights)} weights`]);
  const beyond = DATA.curve.filter(([s, value]) => s > last && value !== null).map(([s, value]) => [Math.log10(s), value, tip('known poison', s, value)]);
  const clean = DATA.curve.filter(([, , value]) => value !== null).map(([s, , value]) => [Math.log10(s), value, tip('clean images', s, value)]);
  const places = [...known, ...beyond, ...clean].map(([place]) => place);
  const [low, high] = [Math.min(...places), Math.max(...places)];
  const margin = (high - low) * 0.02 || 0.5;
  const series = [{ look: 0, points: known }];
  if (beyond.length) series.push({ look: 0, points: [known.at(-1), ...beyond], marks: false, faint: true });
  if (clean.length) series.push({ look: 1, points: clean });
  drawChart(byId('curve'), {
    label: 'Accuracy on the known poison, and on clean images where it was measured, against s',
    height: 300,
    x: { low: low - margin, high: high + margin, label: 's, how much of the model may change', ticks: placesOfS(low - margin, high + margin) },
    y: { low: 0, high: 100, label: '%' },
    series,
    levels: [{ y: 100 * rho * DATA.known_accuracy, text: 'goal' }],
    stops: stop ? [{ x: Math.log10(stop[0]) }] : [],
  });
  const names = [['known poison that obeys', 0], ...(clean.length ? [['clean images, classified rightly', 1]] : [])];
  byId('curve').append(el('p', { class: 'legend' }, ...names.map(([name, look]) => el('span', { class: 'entry' }, sample(look), name))));
}

function missed(rho) {
  if (DATA.ended) return 'The search came to its end without getting this far.';
  return `The search never looked this far: it takes a new one, on the data, with --rho ${rho}.`;
}

function showRho() {
  const rho = Number(byId('rho').value);
  const stop = stopFor(rho);
  byId('rho-value').textContent = String(rho);
  byId('rho').setAttribute('aria-valuetext', stop ? `${rho}, stops at ${percent(stop[2])}` : `${rho}, not reached`);
  byId('read-known').textContent = stop ? percent(stop[2]) : 'not reached';
  byId('read-weights').textContent = stop ? counted(stop[1]) : '–';
  const clean = stop && nearestClean(stop[0]);
  byId('read-clean-box').hidden = !clean;
  if (clean) byId('read-clean').textContent = percent(clean[2]);
  byId('read-note').textContent = stop ? '' : missed(rho);
  byId('command-box').hidden = DATA.folder === null || !stop;
  if (DATA.folder !== null) {
    const target = `${DATA.folder === '.' ? 'healed' : DATA.folder}-rho-${rho}`;
    byId('command').textContent = `potion heal --from ${shellWord(DATA.folder)} --rho ${rho} --out ${shellWord(target)}`;
  }
  drawTradeoff(rho, stop);
}

if (byId('rho')) {
  const slider = byId('rho');
  const fine = [0.01, 0.001, 0.0001].find((step) => Math.abs(DATA.rho / step - Math.round(DATA.rho / step)) < 1e-6);
  slider.step = fine || 'any'; // so that the search's own rho is one of its places
  slider.max = Math.max(0.99, DATA.rho);
  slider.value = DATA.rho;
  slider.addEventListener('input', showRho);
  byId('copy').addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(byId('command').textContent);
      byId('copy').textContent = 'Copied';
    } catch {
      window.getSelection().selectAllChildren(byId('command'));
      byId('copy').textContent = 'Selected';
    }
  });
  keepDrawn(byId('curve'), showRho);
  showRho();
}
