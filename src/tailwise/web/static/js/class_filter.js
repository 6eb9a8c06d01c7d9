/** A box to find a class by typing, for campaigns with more classes than keys. */
import { h, keycap } from './dom.js';
import { matching } from './matching.js';
import { liveClasses, store } from './state.js';

const KEYS = 20;

/**
 * A box over a list of class buttons; typing narrows the list, Enter chooses the best match, Escape leaves.
 * The box hides itself in campaigns that have a key for every class. Put `element` above the list; call `refresh` after
 * the list was filled anew.
 * @param {object} how
 * @param {HTMLElement} how.list                  holds the buttons, each with `data-class="<id>"`; others stay as they are
 * @param {(id: number) => void} how.choose       called with the class that Enter has found
 * @param {() => void} [how.leave]                where the focus goes when the box is left
 * @param {HTMLElement} [how.element]             an element of the page to use instead of a new one
 * @param {boolean} [how.always]                  show it also where there is a key for every class
 * @returns {{element: HTMLElement, focus: () => void, clear: () => void, refresh: () => void}}
 */
export function makeClassFilter({ list, choose, leave = () => {}, element = h('div', {}), always = false }) {
  const none = h('p', { class: 'none-found', role: 'status', hidden: true }, 'No class matches');
  const box = /** @type {HTMLInputElement} */ (h('input', {
    type: 'text', autocomplete: 'off', spellcheck: false, placeholder: 'Find a class', 'aria-label': 'Find a class', oninput: refresh, onkeydown: keys,
  }));
  if (list.id) box.setAttribute('aria-controls', list.id);
  element.classList.add('filter');
  element.append(box, keycap('/'), none);

  function refresh() {
    const fits = matching(liveClasses(store.get()), box.value);
    const order = new Map(fits.map((klass, at) => [klass.id, at]));
    for (const button of /** @type {NodeListOf<HTMLElement>} */ (list.querySelectorAll('button[data-class]'))) {
      const id = Number(button.dataset.class);
      if (!Number.isInteger(id)) continue; // "other" and the like
      const at = order.get(id);
      button.hidden = at === undefined;
      if (box.value) button.style.order = String(at);
      else button.style.removeProperty('order');
      button.classList.toggle('best', Boolean(box.value) && at === 0);
    }
    none.hidden = fits.length > 0;
  }

  function clear() {
    box.value = '';
    refresh();
    leave();
  }

  /** @param {KeyboardEvent} event */
  function keys(event) {
    if (event.isComposing || (event.key !== 'Enter' && event.key !== 'Escape')) return;
    event.preventDefault();
    event.stopPropagation();
    const found = event.key === 'Enter' && box.value.trim() ? matching(liveClasses(store.get()), box.value)[0] : undefined;
    if (event.key === 'Enter' && !found) return;
    clear();
    if (found) choose(found.id);
  }

  store.watch((state) => [liveClasses(state).length], (state) => {
    element.hidden = !always && liveClasses(state).length <= KEYS;
    refresh();
  });
  return { element, refresh, focus: () => void (element.hidden || box.focus()), clear: () => void (box.value && clear()) };
}
