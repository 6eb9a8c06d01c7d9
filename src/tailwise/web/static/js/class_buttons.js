/** The classes as buttons, each under its key; the model's guess is drawn into them unless blind. */
import { byId, h, keycap, nameTag, percent } from './dom.js';
import { isBlind, keyOf, liveClasses, store } from './state.js';
import { shown, standing } from './timeline.js';

const PINNED = 3; // likeliest classes that are shown again on top
const LONG = 28; // characters of a name that needs a whole row on a phone
const MANY = 6; // classes, from which on that saves looking for them

/** @typedef {import('./types.js').Klass} Klass */

/**
 * One class as a button.
 * @param {Klass} klass @param {number} place its place among all classes @param {(id: number) => void} choose
 */
export function classButton(klass, place, choose) {
  const key = keyOf(place, klass);
  return h('button', { class: 'class', type: 'button', 'data-class': klass.id,
    onclick: (/** @type {MouseEvent} */ event) => {
      choose(klass.id);
      // After a click the keys belong to the image again; with the tab key the focus stays on the button.
      if (event.detail) byId('stage').focus({ preventScroll: true });
    } },
  key ? keycap(key.cap) : h('span', { class: 'cap none' }), nameTag(klass.name), h('span', { class: 'share' }), key ? h('span', { class: 'unseen' }, `, key ${key.says}`) : '');
}

/** @param {(id: number) => void} choose */
export function makeClassButtons(choose) {
  const place = byId('classes');
  const likely = byId('likely');
  store.watch((state) => [JSON.stringify(liveClasses(state))], (state) => {
    const classes = liveClasses(state);
    place.classList.toggle('many', classes.length > 12);
    place.classList.toggle('long', classes.some((klass) => klass.name.length > LONG));
    place.replaceChildren(...classes.map((klass, at) => classButton(klass, at, choose)));
    pin(likely, state, choose);
    mark(place, state);
  });
  store.watch((state) => [shown(state.line), isBlind(state)], (state) => {
    pin(likely, state, choose);
    mark(place, state);
  });
}

/** The likeliest classes again, on top, each under its own key. @param {HTMLElement} likely @param {import('./state.js').PageState} state @param {(id: number) => void} choose */
function pin(likely, state, choose) {
  const classes = liveClasses(state);
  const top = isBlind(state) || classes.length < MANY ? [] : shown(state.line)?.prelabel?.top ?? [];
  const buttons = top.slice(0, PINNED).flatMap(({ class_id }) => {
    const at = classes.findIndex((klass) => klass.id === class_id);
    return at < 0 ? [] : [classButton(classes[at], at, choose)];
  });
  likely.hidden = !buttons.length;
  likely.lastElementChild?.replaceChildren(...buttons);
  mark(likely, state);
}

/** Show the guesses and the standing answer of the image on show. @param {HTMLElement} place @param {import('./state.js').PageState} state */
function mark(place, state) {
  const item = shown(state.line);
  const answer = standing(item ?? undefined);
  const guess = isBlind(state) ? null : item?.prelabel;
  const guesses = new Map((guess?.top ?? (guess ? [guess] : [])).map((one) => [one.class_id, one.confidence]));
  for (const button of place.querySelectorAll('button')) {
    const id = Number(button.dataset.class);
    const share = guesses.get(id);
    button.style.setProperty('--share', String(share ?? 0));
    button.classList.toggle('guessed', guess?.class_id === id);
    button.setAttribute('aria-pressed', String(answer?.kind === 'label' && answer.class_id === id));
    const figure = button.querySelector('.share');
    if (figure) figure.textContent = share === undefined || share < 0.005 ? '' : percent(share);
  }
}

/** Let a button light up when its key was pressed. @param {number} id */
export function flash(id) {
  const button = byId('classes').querySelector(`[data-class="${id}"]`);
  button?.classList.remove('flash');
  void button?.clientWidth; // so that the animation begins anew
  button?.classList.add('flash');
}
