"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const config = { displaylogo: false, responsive: true };

  // Values are kept once and referred to by their number, for many choices show the same.
  const value = (number) => structuredClone(data.pool[number]);
  const filled = (numbers) => Object.fromEntries(Object.entries(numbers).map(([name, number]) => [name, value(number)]));

  function draw(name) {
    const selects = document.querySelectorAll(`select[data-chart="${name}"]`);
    const key = Array.from(selects, (one) => one.value).join("|");
    const view = data.charts[name][key];
    Plotly.react(`chart-${name}`, view.traces.map(filled), value(view.layout), config);
  }

  for (const name of Object.keys(data.charts)) {
    draw(name);
    for (const one of document.querySelectorAll(`select[data-chart="${name}"]`)) {
      one.addEventListener("change", () => draw(name));
    }
  }

  for (const one of document.querySelectorAll("select[data-shows]")) {
    const show = () => {
      for (const part of document.querySelectorAll(`[data-of="${one.dataset.shows}"]`)) {
        part.hidden = part.dataset.key !== one.value;
      }
    };
    one.addEventListener("change", show);
    show();
  }

  function sorted(table, column, head) {
    const before = head.getAttribute("aria-sort");
    const numeric = head.classList.contains("n");
    const down = before ? before === "ascending" : numeric;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => {
      const cell = row.cells[column];
      if (!numeric) return cell.title;
      return cell.dataset.v === undefined ? null : Number(cell.dataset.v);
    };
    const order = (a, b) => {
      const [left, right] = [key(a), key(b)];
      if (left === null || right === null) return (left === null) - (right === null);
      const found = numeric ? left - right : left.localeCompare(right, undefined, { numeric: true });
      return down ? -found : found;
    };
    const body = table.tBodies[0];
    body.append(...Array.from(body.rows).sort(order));
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => sorted(table, column, head));
    });
  }

  for (const bar of document.querySelectorAll("[data-filters]")) {
    const table = document.getElementById(bar.dataset.filters);
    const [words, kind, told] = [bar.querySelector("input"), bar.querySelector("select"), bar.querySelector("output")];
    const rows = Array.from(table.tBodies[0].rows);
    const texts = rows.map((row) => Array.from(row.cells, (one) => one.title).join(" ").toLowerCase());
    const filter = () => {
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, index) => {
        const fits = (!kind.value || row.dataset.type === kind.value) && wanted.every((one) => texts[index].includes(one));
        row.hidden = !fits;
        shown += fits;
      });
      told.textContent = `${shown} of ${rows.length} layers`;
    };
    words.addEventListener("input", filter);
    kind.addEventListener("change", filter);
    filter();
  }
})();
