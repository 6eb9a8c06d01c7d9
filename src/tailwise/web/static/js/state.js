/** The page's state, and small questions that several views ask of it. */
import { makeStore } from './store.js';
import { emptyTimeline } from './timeline.js';

/** @typedef {import('./types.js').ServerState} ServerState @typedef {import('./types.js').Klass} Klass */

/**
 * @typedef {object} PageState
 * @property {string} annotator
 * @property {ServerState|null} server          what /api/state said last
 * @property {'starting'|'up'|'away'|'replaced'|'denied'} link
 * @property {string} trouble                    the server's own words, when it refuses
 * @property {import('./types.js').Timeline} line
 * @property {boolean} begun                     earlier answers are known: images may be asked for
 * @property {boolean} dry                       the server has no more images for this person now
 * @property {number} elsewhere                  images that are in other tabs of this person
 * @property {number} waiting                    answers that are not committed yet
 * @property {number} saved                      commits seen since the page was opened
 * @property {number} seen                       how many of them `server` takes into account, at least
 * @property {import('./types.js').Refusal[]} refusals
 * @property {boolean} lasting                   whether the outbox survives a reload
 * @property {string} view
 * @property {boolean} blind
 * @property {string} painted                    key of the image that can be seen, '' while it loads
 */

const BLIND = 'tailwise.blind';

export const store = makeStore(
  /** @type {PageState} */ ({
    annotator: '', server: null, link: 'starting', trouble: '', line: emptyTimeline(), begun: false, dry: false, elsewhere: 0,
    waiting: 0, saved: 0, seen: 0, refusals: [], lasting: true, view: 'label', blind: localStorage.getItem(BLIND) === 'yes', painted: '',
  }),
);

/** Classes that can be chosen, in their order. @param {PageState} state @returns {Klass[]} */
export function liveClasses(state) {
  return (state.server?.classes ?? []).filter((klass) => !klass.retired);
}

/** @param {PageState} state @param {number|null|undefined} id */
export function className(state, id) {
  return state.server?.classes.find((klass) => klass.id === id)?.name ?? '';
}

/** Short names by id, for the lists of classes that were asked for last. @type {Map<string, Map<number, string>>} */ const shortened = new Map();

/**
 * A class name of at most so many characters. Names that would look the same when cut in the middle, and begin alike, lose
 * the words that all of them have; those that still look the same get a number.
 * @param {Klass[]} classes @param {number|null|undefined} id @param {number} most @returns {string}
 */
export function shortName(classes, id, most) {
  const list = `${most}\n${classes.map((klass) => `${klass.id} ${klass.name}`).join('\n')}`;
  const known = shortened.get(list) ?? shortNames(classes, most);
  if (shortened.size > 8) shortened.clear();
  shortened.set(list, known);
  return known.get(id ?? 0) ?? '';
}

/** @param {Klass[]} classes @param {number} most */
function shortNames(classes, most) {
  const cut = (/** @type {string} */ name) => {
    const letters = [...name];
    const head = Math.ceil((most - 1) / 2);
    return letters.length <= most ? name : `${letters.slice(0, head).join('').trimEnd()}…${letters.slice(1 + head - most).join('').trimStart()}`;
  };
  const whole = new Map(classes.map(({ id, name }) => [id, name]));
  const short = new Map(classes.map(({ id, name }) => [id, cut(name)]));
  const clashing = lookingAlike(classes, short).flat();
  for (const alike of grouped(clashing, ({ name }) => name.split(/\s+/)[0])) {
    const words = alike.map(({ name }) => name.split(/\s+/));
    alike.forEach(({ id, name }, at) => {
      const own = words[at].filter((word) => !words.every((others) => others.includes(word)));
      whole.set(id, own.length && own.length < words[at].length ? `…${own.join(' ')}` : name);
      short.set(id, cut(whole.get(id) ?? name));
    });
  }
  for (const alike of lookingAlike(classes, short)) {
    alike.forEach(({ id, name }, at) => {
      const number = String(at + 1);
      short.set(id, `${[...(whole.get(id) ?? name)].slice(0, Math.max(1, most - number.length - 2)).join('').trimEnd()}… ${number}`);
    });
  }
  return short;
}

/** Groups of classes whose short names are the same. @param {Klass[]} classes @param {Map<number, string>} short @returns {Klass[][]} */
function lookingAlike(classes, short) {
  return grouped(classes, ({ id }) => short.get(id)).filter((group) => group.length > 1);
}

/** @param {Klass[]} classes @param {(klass: Klass) => string|undefined} keyed @returns {Klass[][]} */
function grouped(classes, keyed) {
  /** @type {Map<string|undefined, Klass[]>} */ const groups = new Map();
  for (const klass of classes) {
    const group = groups.get(keyed(klass));
    if (group) group.push(klass);
    else groups.set(keyed(klass), [klass]);
  }
  return [...groups.values()];
}

/** What an answer says, in words. @param {PageState} state @param {{kind: string, class_id?: number|null}|null} answer */
export function answerText(state, answer) {
  if (!answer) return '';
  if (answer.kind.endsWith('other')) return 'other';
  return answer.kind === 'skip' ? 'skipped' : className(state, answer.class_id);
}

/** Whether the owner's link was opened; annotators cannot train or start what takes long, settle, export, or change classes and settings. @param {PageState} state */
export function isOwner(state) {
  return state.server?.role !== 'annotator';
}

/** What annotators read where the owner has a button. */
export const OWNER_ONLY = 'Only the owner’s link can do this: ask the person who runs “tailwise label”.';

/** Whether pre-labels are hidden: by the person, or by the campaign for all. @param {PageState} state */
export function isBlind(state) {
  return state.blind || Boolean(state.server?.settings?.blind);
}

export function toggleBlind() {
  const blind = !store.get().blind;
  localStorage.setItem(BLIND, blind ? 'yes' : 'no');
  store.set({ blind });
}

/**
 * The key of a class: its own, or that of its place: 1–9, 0, then with shift.
 * @param {number} at @param {Klass} [klass] @returns {{cap: string, says: string}|null}
 */
export function keyOf(at, klass) {
  if (klass?.hotkey) return { cap: klass.hotkey, says: klass.hotkey };
  if (at >= 20) return null;
  const digit = String((at + 1) % 10);
  return at < 10 ? { cap: digit, says: digit } : { cap: `⇧${digit}`, says: `shift ${digit}` };
}
