/** The one place of state: a plain object, changed by patches; watchers are called once per turn of the event loop. */

/**
 * @template {object} S
 * @param {S} initial
 */
export function makeStore(initial) {
  let state = initial;
  let queued = false;
  /** @type {Set<() => void>} */
  const watchers = new Set();

  const notify = () => {
    queued = false;
    for (const watcher of watchers) watcher();
  };

  return {
    /** @returns {S} */
    get: () => state,

    /** @param {Partial<S>} patch */
    set(patch) {
      state = { ...state, ...patch };
      if (!queued) {
        queued = true;
        queueMicrotask(notify);
      }
    },

    /**
     * Call `then` now, and again whenever one of the picked values has changed.
     * @param {(state: S) => unknown[]} pick
     * @param {(state: S) => void} then
     */
    watch(pick, then) {
      let seen = pick(state);
      watchers.add(() => {
        const now = pick(state);
        if (now.some((value, at) => !Object.is(value, seen[at]))) {
          seen = now;
          then(state);
        }
      });
      then(state);
    },
  };
}
