// Samples: filters, a list, one sample in full. All text is set as text, never as markup.
// They stand in the page, or a server of `milepost view` has them: `find` and `read` are all that differs.
const filters = ["dataset", "series", "checkpoint", "verdict", "flip"].map((name) => document.getElementById(name));
const search = document.getElementById("search");
const list = document.getElementById("list");
const count = document.getElementById("count");
const shown = document.getElementById("sample");
const settings = JSON.parse(document.getElementById("settings").textContent);
const source = settings.server ? serverSource() : embeddedSource();
let found = [];
let current = 0;
let request = 0;

function embeddedSource() {
  const samples = JSON.parse(document.getElementById("data").textContent);
  const texts = ["prompt", "completion", "answer", "gold", "item_id"];
  function matches(sample, chosen, words) {
    if (Object.entries(chosen).some(([name, value]) => value && sample[name] !== value)) return false;
    return !words || texts.some((name) => (sample[name] || "").toLowerCase().includes(words));
  }
  return {
    find: async (chosen, words) => {
      const rows = samples.filter((sample) => matches(sample, chosen, words));
      return { rows, total: rows.length };
    },
    read: async (row) => row,
  };
}

function serverSource() {
  async function ask(path, parameters) {
    const answer = await fetch(path + "?" + new URLSearchParams(parameters));
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }
  return {
    find: (chosen, words) => ask("api/samples", { ...chosen, words }),
    read: (row) => ask("api/sample", { run_id: row.run_id, item_id: row.item_id, repeat: row.repeat }),
  };
}

function element(name, text, parent) {
  const made = document.createElement(name);
  made.textContent = text;
  parent.append(made);
  return made;
}

function fill(filter) {
  const chosen = filter.value;
  const options = settings.options.filter((option) =>
    ["dataset", "series"].every((name) => name === filter.id || !document.getElementById(name).value || option[name] === document.getElementById(name).value));
  const values = settings[filter.id] || [...new Set(options.map((option) => option[filter.id]))];
  filter.replaceChildren(new Option("any " + filter.getAttribute("aria-label"), ""));
  for (const value of values) filter.append(new Option(value, value));
  filter.value = values.includes(chosen) ? chosen : "";
  filter.hidden = values.length < 2;
}

function keyOf(sample) {
  return [sample.run_id, sample.item_id, sample.repeat].join("/");
}

async function refresh(key) {
  filters.forEach(fill);
  const own = ++request;
  const chosen = Object.fromEntries(filters.map((filter) => [filter.id, filter.value]));
  let result;
  try {
    result = await source.find(chosen, search.value.trim().toLowerCase());
  } catch (error) {
    result = { rows: [], total: 0, problem: error.message };
  }
  if (own !== request) return; // a later choice has been made meanwhile
  found = result.rows;
  count.textContent = result.problem || (result.total > found.length ? "the first " + found.length + " of " : "") + result.total.toLocaleString("en") + " samples";
  list.replaceChildren();
  found.forEach((sample, index) => {
    const row = element("button", sample.verdict + (sample.flip ? ", " + sample.flip : "") + " · " + sample.item_id, list);
    row.addEventListener("click", () => show(index));
  });
  const place = key ? found.findIndex((sample) => keyOf(sample) === key) : 0;
  await show(Math.max(0, place), !key);
}

async function show(index, quietly) {
  if (!found.length) {
    shown.replaceChildren();
    element("p", "No sample matches.", shown);
    return;
  }
  current = Math.min(Math.max(index, 0), found.length - 1);
  const own = found[current];
  [...list.children].forEach((row, place) => row.setAttribute("aria-current", place === current));
  const row = list.children[current];
  if (row.offsetTop < list.scrollTop || row.offsetTop > list.scrollTop + list.clientHeight) list.scrollTop = row.offsetTop;
  const sample = await source.read(own);
  if (own !== found[current]) return;
  shown.replaceChildren();
  const facts = [sample.dataset, own.series, sample.global_step === null ? sample.checkpoint : "step " + sample.global_step,
    "problem " + sample.item_id, "repeat " + sample.repeat, ...sample.subsets, sample.num_completion_tokens + " tokens", "ended by " + sample.finish_reason];
  element("p", facts.join(" · "), shown).className = "quiet";
  element("p", sample.verdict + (own.flip ? ", " + own.flip + " since the checkpoint before" : ""), shown).className =
    sample.score === null ? "" : sample.score >= 0.5 ? "good" : "bad";
  text("Answer found", sample.answer);
  text("Reference", sample.gold);
  if (sample.error) text("Why there is no score", sample.error);
  text("Prompt", sample.prompt);
  const end = (sample.completion || "").indexOf("</think>");
  if (end >= 0) {
    const folded = document.createElement("details");
    element("summary", "Reasoning", folded);
    element("pre", sample.completion.slice(0, end).replace("<think>", "").trim(), folded);
    shown.append(folded);
  }
  text("Completion", end >= 0 ? sample.completion.slice(end + 8).trim() : sample.completion);
  if (!quietly) history.replaceState(null, "", "#" + encodeURIComponent(keyOf(sample)));
}

function text(heading, content) {
  element("h3", heading, shown);
  element("pre", content === null || content === undefined ? "–" : content, shown);
}

let typing;
search.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => refresh(), settings.server ? 250 : 0);
});
for (const filter of filters) filter.addEventListener("change", () => refresh());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === "j") show(current + 1);
  else if (event.key === "k") show(current - 1);
  else if (event.key === "/") {
    event.preventDefault();
    search.focus();
  }
});
refresh(decodeURIComponent(location.hash.slice(1)));
