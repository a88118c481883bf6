// The page's language: the link's, else the one that was chosen before, else the browser's. words.js reads the texts of
// it from the element `texts`.
"use strict";
const zeroplanLanguage = (() => {
  const known = ["en", "zh"];
  let kept = null;
  try {
    kept = localStorage.getItem("zeroplan-language");
  } catch {
    // A browser that keeps nothing for this page.
  }
  const said = new URLSearchParams(location.hash.slice(1)).get("lang");
  const language = known.includes(said) ? said : known.includes(kept) ? kept
    : (navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en";
  if (language === "zh") {
    document.getElementById("texts").textContent = document.getElementById("chinese").textContent;
  }
  return language;
})();
