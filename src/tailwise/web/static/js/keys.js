/**
 * The keyboard: which key means what. Digits go by their place on the keyboard, so they work on every layout; a class may
 * also have a character of its own, which is never one of PLAIN: campaign/classes.py (COMMAND_KEYS) sees to that.
 */

/** @typedef {Record<string, (event: KeyboardEvent) => void>} Bindings  by action: 'digit' gets the place of the class */

/** @type {Record<string, string>} */
const PLAIN = {
  u: 'undo', Backspace: 'undo', s: 'skip', o: 'other', z: 'zoom', b: 'blind', g: 'grid', l: 'label', c: 'conflicts', r: 'rounds', a: 'gallery', m: 'map',
  e: 'errors', d: 'dashboard', f: 'flag', n: 'comment', i: 'guide',
  p: 'panel', '?': 'help', '/': 'filter', ArrowLeft: 'left', ArrowRight: 'right', ArrowUp: 'up', ArrowDown: 'down',
  Enter: 'enter', ' ': 'space', Escape: 'escape', t: 'theme', x: 'except', k: 'keep', v: 'adjust',
  '+': 'plus', '=': 'plus', '-': 'minus', '−': 'minus',
};

/** @param {KeyboardEvent} event @returns {string|null} the action, 'digit' for a class key */
export function actionOf(event) {
  if (event.isComposing) return null;
  if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === 'z' && !event.shiftKey) return 'undo';
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  if (placeOf(event) !== null) return 'digit';
  return PLAIN[event.key.length === 1 ? event.key.toLowerCase() : event.key] ?? null;
}

/** @type {Map<string, number>} places of the classes that have a key of their own */
let hotkeys = new Map();

/** Let the keyboard know which classes have a key of their own. @param {import('./types.js').Klass[]} classes those in use, in their order */
export function useHotkeys(classes) {
  hotkeys = new Map(classes.flatMap((klass, place) => (klass.hotkey ? [[klass.hotkey, place]] : [])));
}

/** The place of the class whose own key this is. @param {KeyboardEvent} event @returns {number|null} */
export function ownPlaceOf(event) {
  return hotkeys.get(event.key.toLowerCase()) ?? null;
}

/** The place of the class that a key stands for, from 0: its own key, or a digit; shift adds ten. @param {KeyboardEvent} event @returns {number|null} */
export function placeOf(event) {
  const match = /^(?:Digit|Numpad)([0-9])$/.exec(event.code);
  if (!match) return ownPlaceOf(event);
  if (event.code.startsWith('Numpad') && !/^[0-9]$/.test(event.key)) return null; // the pad's arrows
  return ((Number(match[1]) + 9) % 10) + (event.shiftKey ? 10 : 0);
}

/** Whether the keys belong to a text box, a list or a dialog at the moment. @param {EventTarget|null} target */
function taken(target) {
  if (document.querySelector('dialog[open]')) return true;
  return target instanceof HTMLElement && (target.isContentEditable || (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && !/^(range|checkbox)$/.test(/** @type {HTMLInputElement} */ (target).type)));
}

/** Enter and space on a focused button or link press it, arrows move a slider. @param {EventTarget|null} target @param {string} action */
function presses(target, action) {
  if (target instanceof HTMLInputElement) return /^(left|right|up|down|enter|space)$/.test(action);
  return (action === 'enter' || action === 'space') && target instanceof HTMLElement && target.closest('button, a, summary') !== null;
}

/** @param {() => Bindings} bindings those of the view that is open */
export function listenToKeys(bindings) {
  addEventListener('keydown', (event) => {
    if (taken(event.target)) return;
    const action = actionOf(event);
    const act = action && !presses(event.target, action) ? bindings()[action] : undefined;
    if (!act || (event.repeat && !/^(left|right|up|down)$/.test(String(action)))) return;
    event.preventDefault();
    act(event);
  });
}
