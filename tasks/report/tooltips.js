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
