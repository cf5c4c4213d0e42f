"use strict";
// The leaderboard: lines as data, a page of them drawn at a time, one string of HTML. Every text of a line passes through safe().
const safe = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

function leaderboard(prefix) { // of the rows of one scale
  const at = (id) => document.getElementById(prefix + id);
  const lines = JSON.parse(at("board").textContent);
  const table = at("leaderboard"), body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const [data, network, search] = ["data", "network", "search"].map(at);
  const counter = at("status"), more = at("more");
  const words = lines.map((line) => line.text.slice(0, 3).join(" ").toLowerCase());
  const sets = lines.map((line) => line.text[1].replace("\n", ", "));
  const STEP = 200;
  const unfolded = new Set();
  let column = 3, direction = 1, shown = STEP, order = [];


  function compare(a, b) { // what is missing comes last in both directions
    const [x, y] = [lines[a].sort[column], lines[b].sort[column]];
    if (x === null || y === null) return (x === null) - (y === null) || a - b;
    return (x < y ? -direction : x > y ? direction : 0) || a - b;
  }

  function choose() {
    const parts = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    order = [];
    lines.forEach((line, i) => {
      if ((!data.value || sets[i] === data.value) && (!network.value || line.text[2] === network.value)
        && parts.every((part) => words[i].includes(part))) order.push(i);
    });
    order.sort(compare);
    draw();
  }

  function draw() {
    body.innerHTML = order.slice(0, shown).map((i) => drawn(i) + (unfolded.has(i) ? detail(i) : "")).join("");
    const hidden = Math.max(0, order.length - shown);
    const number = (n) => n.toLocaleString("en");
    counter.textContent = `${number(order.length)} of ${number(lines.length)} lines` + (hidden ? `, the first ${number(shown)} shown` : "");
    more.hidden = !hidden;
    more.textContent = `Show all ${number(order.length)}`;
    heads.forEach((head, i) => i === column
      ? head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending") : head.removeAttribute("aria-sort"));
  }

  function drawn(i) {
    const texts = lines[i].text.map((text) => {
      const [large, small] = text.split("\n");
      return [safe(large), small ? `<small>${safe(small)}</small>` : ""];
    });
    const cells = texts.slice(1).map((parts, place) => `<td${place < 2 ? ' class="word"' : ""}>${parts.join("")}</td>`);
    const [name, changes] = texts[0];
    return `<tr data-line="${i}"><th scope="row"><button type="button" class="open" aria-expanded="${unfolded.has(i)}">${name}</button>${changes}</th>${cells.join("")}</tr>`;
  }

  function detail(i) {
    const { about, runs } = lines[i].more;
    const facts = Object.entries(about).map(([key, value]) => `<dt>${safe(key)}</dt><dd>${safe(value)}</dd>`).join("");
    const pictures = runs.map((run) => `<figure><figcaption>seed ${safe(run.seed)}, ECE ${safe(run.ece)} %</figcaption>${
      run.bins.length ? diagram(run) : '<p class="quiet">no diagram in this row</p>'}<p class="quiet">${safe(run.verdict)}</p></figure>`).join("");
    return `<tr class="detail"><td colspan="${heads.length}"><div class="inside"><div class="pictures">${pictures}</div><dl>${facts}</dl></div></td></tr>`;
  }

  function diagram(run) { // a dot a bin, its gap to the diagonal as a bar, and below how many rows it has
    const bins = run.bins.map((bin) => bin.map(Number));
    const most = Math.max(...bins.map((bin) => bin[0]));
    const x = (value) => (34 + 196 * value).toFixed(1), y = (value) => (206 - 196 * value).toFixed(1);
    const gaps = bins.map(([, sure, right]) => `<path class="${sure > right ? "over" : "under"}" d="M${x(sure)} ${y(sure)}V${y(right)}"/>`
      + `<circle class="${sure > right ? "over" : "under"}" cx="${x(sure)}" cy="${y(right)}" r="3.5"/>`);
    const shares = bins.map(([count, sure]) => {
      const place = Math.min(14, Math.floor(15 * sure)), height = 36 * count / most;
      return `<rect class="share" x="${(34 + 196 * place / 15 + 0.75).toFixed(1)}" y="${(254 - height).toFixed(1)}" width="11.6" height="${height.toFixed(1)}"/>`;
    });
    const ticks = [0, 0.5, 1].map((v) => `<text x="28" y="${+y(v) + 4}" text-anchor="end">${100 * v}</text><text x="${x(v)}" y="268" text-anchor="middle">${100 * v}</text>`);
    return `<svg class="diagram" viewBox="0 0 240 286" width="240" height="286" role="img" aria-label="Reliability diagram: accuracy against confidence">`
      + `<rect class="frame" x="34" y="10" width="196" height="196"/><path class="even" d="M34 206L230 10"/>${gaps.join("")}${shares.join("")}`
      + `<path class="frame" d="M34 254H230"/>${ticks.join("")}<text x="132" y="282" text-anchor="middle">confidence, %</text>`
      + `<text transform="translate(9 108) rotate(-90)" text-anchor="middle">accuracy, %</text></svg>`;
  }

  function toggle(row) {
    const i = Number(row.dataset.line), opened = !unfolded.has(i);
    if (opened) {
      unfolded.add(i);
      row.insertAdjacentHTML("afterend", detail(i));
    } else {
      unfolded.delete(i);
      row.nextElementSibling.remove();
    }
    row.querySelector("button").setAttribute("aria-expanded", opened);
  }

  table.tHead.addEventListener("click", (event) => {
    const place = heads.indexOf(event.target.closest("th"));
    if (!event.target.closest("button")) return;
    direction = place === column ? -direction : 1;
    column = place;
    choose();
  });
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-line]");
    if (row && !String(window.getSelection())) toggle(row);
  });
  body.addEventListener("keydown", (event) => {
    const row = event.target.closest("tr[data-line]");
    if (!row) return;
    if (event.key === "Escape" && unfolded.has(Number(row.dataset.line))) toggle(row);
    const buttons = [...body.querySelectorAll("button.open")], step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    buttons[buttons.indexOf(event.target) + step]?.focus();
  });
  for (const control of [data, network]) control.addEventListener("change", choose);
  search.addEventListener("input", choose);
  more.addEventListener("click", () => { shown = Infinity; draw(); table.querySelector("button").focus(); });
  window.addEventListener("beforeprint", () => { shown = Infinity; draw(); });
  choose();
}

const parts = [...document.querySelectorAll(".part")];
for (const part of parts) leaderboard(part.dataset.prefix);

function choosePart() { // without this script all are shown, one below the other
  const chosen = document.querySelector("#scales input:checked");
  if (chosen) for (const part of parts) part.hidden = part.id !== chosen.value;
}
document.getElementById("scales")?.addEventListener("change", choosePart);
choosePart();
