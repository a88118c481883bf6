// The words of pages and plots in the reader's language: `zeroplanSay("{} of {}", 1, 2)`. The English text is the
// key of its translation (configs/messages/zh.json, group "page"); what is not there stays English.
"use strict";
const zeroplanSay = (() => {
  const texts = typeof document === "undefined" ? zeroplanTexts
    : JSON.parse(document.getElementById("texts").textContent);
  return (english, ...values) => {
    let next = 0;
    return (Object.hasOwn(texts, english) ? texts[english] : english)
      .replace(/\{(\d?)\}/g, (all, digit) => values[digit === "" ? next++ : Number(digit)]);
  };
})();
