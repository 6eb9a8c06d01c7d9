/** Finding names by what is typed, whatever the case and the accents. */

/** Letters without accents and case, so that "ecole" finds "École". @param {string} text */
export function plain(text) {
  return text.normalize('NFD').replace(/\p{M}/gu, '').toLocaleLowerCase();
}

/** Names that fit what was typed: those that begin with it first. @template {{name: string}} K @param {K[]} classes @param {string} typed @returns {K[]} */
export function matching(classes, typed) {
  const wanted = plain(typed.trim());
  const found = classes.filter((klass) => plain(klass.name).includes(wanted));
  const starts = (/** @type {K} */ klass) => Number(!plain(klass.name).startsWith(wanted));
  return [...found].sort((a, b) => starts(a) - starts(b));
}
