// What is evaluated at this moment, and a word when the page is older than the store.
const live = document.getElementById("live");
async function poll() {
  try {
    const answer = await fetch("api/state");
    if (!answer.ok) throw new Error(await answer.text());
    const state = await answer.json();
    live.replaceChildren();
    for (const line of state.unfinished) element("div", line, live);
    if (state.version !== settings.version) {
      const reload = element("button", "New results: show them", live);
      reload.addEventListener("click", () => location.reload());
    }
  } catch (error) {
    live.textContent = "milepost view does not answer: start it again";
  }
}
poll();
setInterval(poll, 5000);
