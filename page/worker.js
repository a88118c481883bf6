// The planner in a worker, so that the page answers while it computes. In {module} first, then {id, words, files};
// out {ready}, then {id, code, out, log, seconds}. What goes wrong is {id, failed}.
"use strict";
{
  let planner;
  onmessage = async ({ data }) => {
    try {
      if (data.module) {
        planner = await zeroplanPlanner(data.module);
        postMessage({ ready: true });
      } else {
        const began = performance.now();
        const answer = planner.run(data.words, data.files);
        postMessage({ id: data.id, ...answer, seconds: (performance.now() - began) / 1000 });
      }
    } catch (error) {
      postMessage({ id: data.id, failed: String(error) });
    }
  };
}
