// The page: files go to the server, commands run there, and their answers are shown.
import { count, make, share, table, told } from "./show.js";
import { live } from "./live.js";

const LEVELS = ["speed", "balanced", "size", "ram"];
const MODELS = /\.(toml|tflite|onnx|tar|cc|cpp|h|c|py|so|tgz|zip)$/i;
const MOST = 64 * 2 ** 20;
const at = (id) => document.getElementById(id);
const state = { drop: "", file: "", labels: null, names: [], costs: new Map(), turn: 0 };

function status(text, wrong = false) {
  at("status").textContent = text;
  at("status").className = wrong ? "wrong" : "";
}

async function post(path, body, type = "application/json", signal = null) {
  const response = await fetch(path, { method: "POST", body, headers: { "Content-Type": type }, signal });
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.message), answer);
  return answer;
}

const ask = (name, more = {}, signal = null) =>
  post(`/api/${name}`, JSON.stringify({ drop: state.drop, file: state.file, ...more }), undefined, signal);
const level = () => LEVELS[Number(at("level").value)];
const chosen = () => ({ board: at("board").value, optimize: level() });

// What is asked for each place; a newer request ends the older one, and its command.
const running = new WeakMap();

// Runs a command, says that it does, and shows its answer in `place`.
async function show(place, what, name, more, render) {
  running.get(place)?.abort();
  const controller = new AbortController();
  running.set(place, controller);
  status(`${what} ...`);
  place.setAttribute("aria-busy", "true");
  try {
    const answer = await ask(name, more, controller.signal);
    told(place, answer, ...(answer.result.error ? [] : render(answer.result, answer)));
    status(answer.result.error ? `${what}: ${answer.result.message}` : `${what}: done.`, Boolean(answer.result.error));
    return answer;
  } catch (error) {
    if (controller.signal.aborted) return null;
    told(place, { result: { error: true, message: error.message, hint: error.hint } });
    status(`${what}: ${error.message}`, true);
    return null;
  } finally {
    if (running.get(place) === controller) place.removeAttribute("aria-busy");
  }
}

async function upload(files, drop = "") {
  for (const file of files) {
    if (file.size > MOST) throw new Error(`${file.name} is larger than ${count(MOST)} bytes`);
    const path = encodeURIComponent(file.webkitRelativePath || file.name);
    drop = (await post(`/api/drop?drop=${drop}&path=${path}`, file, "application/octet-stream")).drop;
    if (file.name === "labels.txt") {
      Object.assign(state, { labels: decodeURIComponent(path), names: (await file.text()).split(/\r?\n/) });
    }
  }
  return drop;
}

async function take(files) {
  const main = [...files].sort((a, b) => rank(a.name) - rank(b.name))[0];
  if (!main) return;
  status(`Reading ${main.name} ...`);
  Object.assign(state, { labels: null, names: [] });
  try {
    begin(await upload(files), main.name);
  } catch (error) {
    status(error.message, true);
  }
}

function rank(name) {
  return name.endsWith(".toml") ? 0 : MODELS.test(name) ? 1 : 2;
}

function begin(drop, file) {
  Object.assign(state, { drop, file, costs: new Map() });
  at("title").textContent = file;
  document.title = `${file}: crtgen view`;
  for (const place of document.querySelectorAll(".result")) place.replaceChildren();
  at("tried").hidden = false;
  models.reset();
  refresh();
}

// Everything that depends on board and level.
async function refresh() {
  const turn = ++state.turn;
  showCosts();
  const asked = chosen();
  await new Promise((done) => setTimeout(done, 200));
  if (turn !== state.turn) return;
  const network = show(at("network-result"), "Reading the network", "inspect", asked, (result, answer) => drawings(answer.page));
  await Promise.all([network, costs(asked.board, [asked.optimize, ...LEVELS])]);
}

// Drawings of the report's page, which the server made.
function drawings(page) {
  const parsed = new DOMParser().parseFromString(page, "text/html");
  return [...document.adoptNode(parsed.body).childNodes];
}

async function costs(board, levels) {
  for (const optimize of levels) {
    const key = `${state.drop} ${board} ${optimize}`;
    if (!state.costs.has(key) && at("board").value === board) {
      const answer = await ask("fit", { board, optimize }).catch((error) => ({ result: { error: true, message: error.message } }));
      state.costs.set(key, answer);
      showCosts();
    }
  }
}

function cost(optimize) {
  const answer = state.costs.get(`${state.drop} ${at("board").value} ${optimize}`);
  return answer && !answer.result.error ? answer.result.fits[0] : null;
}

function showCosts() {
  const fit = cost(level());
  const time = fit && fit.seconds !== null ? ` (${(fit.seconds * 1e3).toFixed(2)} ms)` : "";
  const spent = fit && fit.cycles_estimated !== null ? `, ${count(fit.cycles_estimated)} cycles${time}` : "";
  const sizes = fit ? `: ${count(fit.library.flash)} bytes of flash, ${count(fit.library.ram)} of RAM${spent}` : "";
  at("cost").textContent = `${level()}${sizes}${fit && !fit.fits ? "; it does not fit" : ""}`;
  at("level").setAttribute("aria-valuetext", level());
  const known = LEVELS.map((name) => [name, cost(name)]).filter(([, fit]) => fit);
  if (!known.length) return;
  const figures = [["flash", (fit) => fit.library.flash], ["RAM", (fit) => fit.library.ram], ["cycles", (fit) => fit.cycles_estimated ?? 0]];
  const most = figures.map(([, of]) => Math.max(...known.map(([, fit]) => of(fit))));
  const rows = known.map(([name, fit]) => ({
    className: name === level() ? "chosen" : "",
    cells: [name, ...figures.flatMap(([what, of], n) => [count(of(fit)), share(of(fit), most[n], `${what} of ${name}: ${count(of(fit))}`)])],
  }));
  told(at("levels-result"), state.costs.get(`${state.drop} ${at("board").value} ${level()}`) ?? { result: {} },
    table("Levels", ["level", "flash", "", "RAM", "", "cycles", ""], rows));
}

function verified(result) {
  const right = result.cases - result.failed;
  const wrong = Object.entries(result.differences).map(([name, text]) => make("p", { className: "wrong" }, `${name}: ${text}`));
  return [make("p", {}, `${right} of ${result.cases} cases as expected on ${result.board}.`), ...wrong];
}

function proved(result) {
  const holds = result.proven || result.proven_but_for_npu;
  const time = result.instructions ? `${count(result.instructions.least)} to ${count(result.instructions.most)} instructions, ` : "";
  const cycles = result.cycles ? `at most ${count(result.cycles.most)} cycles, ` : "";
  const text = `${holds ? "Proven" : "Not proven"}: ${count(result.outputs_proven)} of ${count(result.outputs)} outputs are the network's for every input.`;
  const why = result.stopped || result.first_reason;
  return [make("p", { className: holds ? "" : "wrong" }, make("strong", {}, text)),
    make("p", {}, `${time}${cycles}memory accesses ${result.memory_safe ? "are safe" : "are not shown to be safe"}.`),
    ...(why ? [make("p", {}, why)] : [])];
}

function accuracy(result) {
  if (!result.confusion) return [make("p", {}, `AUC ${result.auc?.toFixed(4) ?? ""}; hits ${result.hits ?? ""}, misses ${result.misses ?? ""}`)];
  const rows = result.confusion.map((row, n) => ({ cells: [result.names[n], ...row.map(count)] }));
  return [make("p", {}, make("strong", {}, `Accuracy ${(100 * result.accuracy).toFixed(2)} % of ${count(result.clips)}.`)),
    table("Confusion", ["is, taken for", ...result.names], rows)];
}

function fits(result) {
  const rows = result.fits.map((fit) => {
    const short = Object.entries(fit.short).map(([name, bytes]) => `${name} ${count(bytes)} short`).join(", ");
    const time = fit.seconds === null ? "" : (fit.seconds * 1e3).toFixed(2);
    return { cells: [fit.board, fit.core, fit.fits ? "yes" : `no: ${short}`, count(fit.library.flash), count(fit.library.ram), time] };
  });
  return [table("Boards", ["board", "core", "fits", "flash", "RAM", "ms"], rows, 3)];
}

async function evaluate(files, data) {
  status("Reading the data ...");
  try {
    await upload(files, state.drop);
    const named = state.labels === null ? {} : { labels: state.labels };
    await show(at("checks-result"), "Counting what is right", "eval", { board: "host", optimize: level(), data, ...named }, accuracy);
  } catch (error) {
    status(error.message, true);
  }
}

async function download() {
  const answer = await show(at("project-result"), "Generating", "generate", { ...chosen(), type: at("type").value },
    (result) => [make("p", {}, `${count(result.files)} files.`)]);
  if (!answer || answer.result.error) return;
  const zip = await (await fetch(`/api/project?drop=${state.drop}`)).blob();
  const link = make("a", { href: URL.createObjectURL(zip), download: `${answer.result.models[0].model}.zip` }, "Save the project");
  at("project-result").prepend(link);
  link.click();
}

function connect() {
  at("files").onchange = () => take(at("files").files);
  for (const name of ["dragover", "dragleave", "drop"]) {
    addEventListener(name, (event) => {
      event.preventDefault();
      at("drop").classList.toggle("over", name === "dragover");
      if (name === "drop") take(event.dataTransfer.files);
    });
  }
  at("choices").onsubmit = (event) => event.preventDefault();
  at("board").onchange = refresh;
  at("level").oninput = refresh;
  const checks = at("checks-result");
  at("verify-host").onclick = () => show(checks, "Verifying here", "verify", { board: "host", optimize: level() }, verified);
  at("verify-board").onclick = () => show(checks, "Verifying in the simulator", "verify", chosen(), verified);
  at("prove").onclick = () => show(checks, "Proving", "prove", chosen(), proved);
  at("data").onchange = () => evaluate(at("data").files, at("data").files[0].name);
  at("clips").onchange = () => evaluate(at("clips").files, at("clips").files[0].webkitRelativePath.split("/")[0]);
  at("fit").onclick = () => show(at("boards-result"), "Asking for all boards", "fit", { optimize: level() }, fits);
  at("generate").onclick = download;
}

const models = live({ at, ask, post, status, state, level });

async function main() {
  history.replaceState(null, "", "/");
  connect();
  const { result, first } = await ask("boards");
  const names = result.boards.map((board) => make("option", { value: board.name, title: board.summary }, board.name));
  at("board").replaceChildren(...names);
  at("board").value = "mps2_an386";
  status("Ready.");
  if (first.drop) begin(first.drop, first.files[0]);
}

main().catch((error) => status(error.message, true));
