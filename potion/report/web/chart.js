// Lines on two axes, as SVG, at the width that there is: text keeps its size on a phone.
const MARKS = [
  'M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z', 'M-3.5-3.5h7v7h-7z', 'M0-5 4.5 4h-9z', 'M0 5 4.5-4h-9z', 'M0-5 4.5 0 0 5-4.5 0z',
  'M-4-1.5h2.5V-4h3v2.5H4v3H1.5V4h-3V1.5H-4z', 'M-5 0-1.5-1.5 0-5 1.5-1.5 5 0 1.5 1.5 0 5-1.5 1.5z',
  'M-4-2.5 0-5l4 2.5v5L0 5l-4-2.5z',
];
const LOOKS = 12;
const EDGE = { left: 44, right: 14, top: 28, bottom: 42 };

const scale = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

// Round values inside a range, about `wanted` of them.
function ticksBetween(low, high, wanted) {
  const rough = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high + step / 1e6; k += 1) found.push(Number((k * step).toPrecision(6)));
  return found;
}

// Every tick, or every second, third, ... counted from the last, so that their texts do not touch.
function thinned(ticks, x) {
  const half = ([, text]) => 3.6 * text.length + 2;
  const fits = (kept) => kept.every((tick, k) => !k || x(kept[k - 1][0]) + half(kept[k - 1]) <= x(tick[0]) - half(tick));
  let kept = ticks;
  for (let stride = 2; !fits(kept); stride += 1) kept = ticks.filter((_, k) => (ticks.length - 1 - k) % stride === 0);
  return kept;
}

// spec: {label, height, x: {low, high, label, ticks: [[place, text]]}, y: {low, high, label},
//        series: [{look, points: [[x, y, tip]], marks, faint}], levels: [{y, text}], stops: [{x}]}
function drawChart(box, spec) {
  const width = Math.max(240, box.clientWidth);
  const bottom = spec.height - EDGE.bottom;
  const x = scale(spec.x.low, spec.x.high, EDGE.left, width - EDGE.right);
  const y = scale(spec.y.low, spec.y.high, bottom, EDGE.top);
  const picture = svg('svg', { viewBox: `0 0 ${width} ${spec.height}`, width, height: spec.height, role: 'img', 'aria-label': spec.label });
  for (const value of ticksBetween(spec.y.low, spec.y.high, 6)) {
    picture.append(
      svg('line', { class: 'grid', x1: EDGE.left, x2: width - EDGE.right, y1: y(value), y2: y(value) }),
      svg('text', { class: 'tick', x: EDGE.left - 8, y: y(value) + 4, 'text-anchor': 'end' }, String(value).replace('-', '\u2212')),
    );
  }
  for (const [place, text] of thinned(spec.x.ticks, x)) {
    picture.append(svg('text', { class: 'tick', x: x(place), y: bottom + 18, 'text-anchor': 'middle' }, text));
  }
  picture.append(
    svg('text', { class: 'axis', x: width - EDGE.right, y: spec.height - 6, 'text-anchor': 'end' }, spec.x.label),
    svg('text', { class: 'axis', x: 0, y: 11 }, spec.y.label),
  );
  for (const level of spec.levels || []) {
    picture.append(svg('line', { class: 'level', x1: EDGE.left, x2: width - EDGE.right, y1: y(level.y), y2: y(level.y) }));
    if (level.text) picture.append(svg('text', { class: 'tick', x: EDGE.left + 4, y: y(level.y) - 5 }, level.text));
  }
  for (const stop of spec.stops || []) {
    picture.append(svg('line', { class: 'stop', x1: x(stop.x), x2: x(stop.x), y1: EDGE.top, y2: bottom }));
  }
  for (const line of spec.series) picture.append(drawnLine(line, x, y));
  box.replaceChildren(picture);
}

function drawnLine({ look, points, marks = true, faint = false }, x, y) {
  const path = points.map(([px, py], k) => `${k ? 'L' : 'M'}${x(px).toFixed(1)} ${y(py).toFixed(1)}`).join('');
  const group = svg('g', { class: `line look-${look % LOOKS}${faint ? ' faint' : ''}` }, svg('path', { class: 'stroke', d: path }));
  for (const [px, py, tip] of marks ? points : []) {
    const place = `translate(${x(px).toFixed(1)} ${y(py).toFixed(1)})`;
    group.append(svg('path', { class: 'mark', d: MARKS[look % MARKS.length], transform: place }, svg('title', {}, tip)));
  }
  return group;
}

// A piece of the line with its mark, for a legend.
function sample(look) {
  return svg('svg', { class: `line look-${look % LOOKS}`, viewBox: '-12 -7 24 14', 'aria-hidden': 'true' },
    svg('path', { class: 'stroke', d: 'M-12 0h24' }), svg('path', { class: 'mark', d: MARKS[look % MARKS.length] }));
}

// Draw now, and again whenever the width changes.
function keepDrawn(box, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (box.clientWidth !== width) {
      width = box.clientWidth;
      draw();
    }
  }).observe(box);
}
