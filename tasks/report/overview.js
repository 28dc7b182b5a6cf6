"use strict";
// Tooltips: what a mark of a chart says of itself for screen readers is shown to everybody.
const tip = document.getElementById("tip");
document.addEventListener("mousemove", (event) => {
  const mark = event.target.closest('.chart [role="graphics-symbol"][aria-label]');
  tip.style.display = mark ? "block" : "none";
  if (!mark) return;
  tip.textContent = mark.getAttribute("aria-label");
  tip.style.left = Math.min(event.clientX + 12, window.innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(event.clientY + 12, window.innerHeight - tip.offsetHeight - 8) + "px";
});

// Samples: filters, a list, one sample in full. All text is set as text, never as markup.
const samples = JSON.parse(document.getElementById("data").textContent);
const filters = ["dataset", "series", "verdict", "flip"].map((name) => document.getElementById(name));
const search = document.getElementById("search");
const list = document.getElementById("list");
const shown = document.getElementById("sample");
let found = [];
let current = 0;

for (const filter of filters) {
  const values = [...new Set(samples.map((sample) => sample[filter.id]).filter((value) => value))].sort();
  filter.append(new Option("any " + filter.getAttribute("aria-label"), ""));
  for (const value of values) filter.append(new Option(value, value));
  filter.hidden = values.length < 2 && filter.id !== "flip";
  filter.addEventListener("change", () => refresh());
}
search.addEventListener("input", () => refresh());

function element(name, text, parent) {
  const made = document.createElement(name);
  made.textContent = text;
  parent.append(made);
  return made;
}

function keyOf(sample) {
  return [sample.run_id, sample.item_id, sample.repeat].join("/");
}

function matches(sample, words) {
  if (filters.some((filter) => filter.value && sample[filter.id] !== filter.value)) return false;
  return !words || ["prompt", "completion", "answer", "gold", "item_id"].some((name) => (sample[name] || "").toLowerCase().includes(words));
}

function refresh(key) {
  const words = search.value.trim().toLowerCase();
  found = samples.filter((sample) => matches(sample, words));
  list.replaceChildren();
  found.forEach((sample, index) => {
    const row = element("button", sample.verdict + (sample.flip ? ", " + sample.flip : "") + " · " + sample.item_id, list);
    row.addEventListener("click", () => show(index));
  });
  show(Math.max(0, key ? found.findIndex((sample) => keyOf(sample) === key) : 0), !key);
}

function show(index, quietly) {
  shown.replaceChildren();
  if (!found.length) {
    element("p", "No sample matches.", shown);
    return;
  }
  current = Math.min(Math.max(index, 0), found.length - 1);
  [...list.children].forEach((row, place) => row.setAttribute("aria-current", place === current));
  const row = list.children[current];
  if (row.offsetTop < list.scrollTop || row.offsetTop > list.scrollTop + list.clientHeight) list.scrollTop = row.offsetTop;
  const sample = found[current];
  const facts = [sample.dataset, sample.series, sample.global_step === null ? sample.checkpoint : "step " + sample.global_step,
    "problem " + sample.item_id, "repeat " + sample.repeat, ...sample.subsets, sample.num_completion_tokens + " tokens", "ended by " + sample.finish_reason];
  element("p", facts.join(" · "), shown).className = "quiet";
  element("p", sample.verdict + (sample.flip ? ", " + sample.flip + " since the checkpoint before" : ""), shown).className =
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
