// Shows answers: tables, bars, errors. Texts are set as text, never as markup.

export function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

export function count(value) {
  return value === null || value === undefined ? "" : Math.round(value).toLocaleString("en");
}

// Cells are texts or elements; the columns from `numbers` on hold numbers.
export function table(title, columns, rows, numbers = 1) {
  const kind = (n) => (n >= numbers ? "number" : "");
  const head = columns.map((text, n) => make("th", { scope: "col", className: kind(n) }, text));
  const body = rows.map(({ cells, className = "" }) => make("tr", { className },
    ...cells.map((cell, n) => (n ? make("td", { className: kind(n) }, cell) : make("th", { scope: "row" }, cell)))));
  const made = make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
  const box = make("div", { className: "wide", tabIndex: 0, role: "region" }, made);
  box.setAttribute("aria-label", title);
  return box;
}

// A share of the largest, with its value as text for readers of the screen.
export function share(value, most, text) {
  const bar = make("progress", { max: Math.max(most, 1e-12), value: Math.max(0, value) });
  bar.setAttribute("aria-label", text);
  return bar;
}

export function bars(values, labels, shown = 10) {
  const most = Math.max(...values.map(Math.abs));
  const order = values.map((_, n) => n).sort((a, b) => values[b] - values[a]);
  const chosen = values.length <= shown ? values.map((_, n) => n) : order.slice(0, shown);
  return chosen.map((n) => {
    const name = labels[n] ?? String(n);
    const text = Number(values[n].toPrecision(3)).toString();
    const className = n === order[0] && values.length > 1 ? "bar best" : "bar";
    return make("div", { className }, make("span", {}, name), share(values[n], most, `${name}: ${text}`), make("b", {}, text));
  });
}

export function failure(result) {
  const lines = [make("p", { className: "wrong" }, result.where ? `${result.where}: ${result.message}` : result.message)];
  if (result.hint) lines.push(make("p", {}, `What to do: ${result.hint}`));
  if (result.log) lines.push(details("log", result.log));
  return lines;
}

export function details(title, text) {
  return make("details", {}, make("summary", {}, title), make("pre", { tabIndex: 0 }, text));
}

// What a command said: its parts, how to type it, and all of it as JSON.
export function told(place, answer, ...parts) {
  const said = answer.result ?? answer;
  const shown = said.error ? failure(said) : parts;
  const typed = answer.command ? [make("p", { className: "command" }, quoted(answer.command))] : [];
  const all = said.error ? [] : [details("all of it, as --json prints it", JSON.stringify(said, null, 1))];
  place.replaceChildren(...shown, ...typed, ...all);
}

function quoted(words) {
  return words.map((word) => (/^[\w@%+=:,.\/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}
