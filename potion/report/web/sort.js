// Tables of the class "sortable": a press on a header sorts by its column, another one turns the order round.
const sortKey = (cell) => (cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value));

function compared(a, b) {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return String(a).localeCompare(String(b));
}

// What was sorted stays sorted when the rows are made anew.
function sortAgain(table) {
  const headers = [...table.tHead.rows[0].cells];
  const column = headers.findIndex((header) => header.getAttribute('aria-sort') !== 'none');
  if (column < 0) return;
  const turn = headers[column].getAttribute('aria-sort') === 'descending' ? -1 : 1;
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => turn * compared(sortKey(a.cells[column]), sortKey(b.cells[column])));
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll('table.sortable')) {
  const headers = [...table.tHead.rows[0].cells];
  for (const header of headers) {
    header.querySelector('button').addEventListener('click', () => {
      const first = header.classList.contains('number') ? 'descending' : 'ascending';
      const second = first === 'ascending' ? 'descending' : 'ascending';
      const order = header.getAttribute('aria-sort') === first ? second : first;
      for (const other of headers) other.setAttribute('aria-sort', other === header ? order : 'none');
      sortAgain(table);
    });
  }
}
