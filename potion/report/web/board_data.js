// Runs into averages: seeds inside a scenario first, then scenarios, as in the tables of the benchmark.
const [HEALED, DAMAGE, CLEAN] = [0, 1, 2];
const RUNS = DATA.runs.map(([suite, attack, poisoned, known, method, seed, ...scores]) => ({ suite, attack, poisoned, known, method, seed, scores }));
const victimOf = (run) => `${run.suite}/${run.attack}/${run.poisoned}`;

function shareOf(known, poisoned) {
  if (known === 1 && poisoned > 1) return 'one';
  return `${Number(((100 * known) / poisoned).toPrecision(3))} %`;
}

// The poisoned model itself looks at no known sample: it stands at every share of its scenario.
function placed(runs) {
  const shares = new Map();
  for (const run of runs) {
    if (!shares.has(victimOf(run))) shares.set(victimOf(run), new Set());
    if (run.method !== DATA.everywhere) shares.get(victimOf(run)).add(run.known);
  }
  return runs.flatMap((run) => {
    const every = [...shares.get(victimOf(run))];
    return run.method === DATA.everywhere && every.length ? every.map((known) => ({ ...run, known, file: run })) : [{ ...run, file: run }];
  });
}

function grouped(items, key) {
  const groups = new Map();
  for (const item of items) {
    if (!groups.has(key(item))) groups.set(key(item), []);
    groups.get(key(item)).push(item);
  }
  return groups;
}

function leaderboard(runs) {
  const cellOf = (run) => `${victimOf(run)}/${run.known}`;
  const all = new Set(runs.map(cellOf)).size;
  return [...grouped(runs, (run) => run.method)].map(([method, mine]) => {
    const cells = [...grouped(mine, cellOf).values()];
    const seeds = cells.map((cell) => new Set(cell.map((run) => run.seed)).size);
    const measures = [HEALED, DAMAGE, CLEAN].map((measure) => {
      const means = cells.map((cell) => mean(cell.map((run) => run.scores[measure])));
      return { mean: mean(means), deviation: deviation(means) };
    });
    return { method, measures, cells: cells.length, all, seeds: [Math.min(...seeds), Math.max(...seeds)], runs: new Set(mine.map((run) => run.file)).size };
  });
}
