/** A box to find a class by typing, for campaigns with more classes than keys. */
import { byId, h, keycap } from './dom.js';
import { matching } from './matching.js';
import { liveClasses, store } from './state.js';

const KEYS = 20;

/** @param {(id: number) => void} choose */
export function makeClassFilter(choose) {
  const place = byId('filter');
  const classes = byId('classes');
  const none = h('p', { class: 'none-found', role: 'status', hidden: true }, 'No class fits');
  const box = /** @type {HTMLInputElement} */ (h('input', {
    type: 'text', autocomplete: 'off', spellcheck: false, placeholder: 'Find a class', 'aria-label': 'Find a class', 'aria-controls': 'classes',
    oninput: narrow, onkeydown: keys,
  }));
  place.append(box, keycap('/'));
  classes.after(none);

  const best = () => matching(liveClasses(store.get()), box.value)[0];

  function narrow() {
    const fits = matching(liveClasses(store.get()), box.value);
    const order = new Map(fits.map((klass, at) => [klass.id, at]));
    for (const button of classes.querySelectorAll('button')) {
      const at = order.get(Number(button.dataset.class));
      button.hidden = at === undefined;
      button.style.order = box.value ? String(at) : '';
      button.classList.toggle('best', Boolean(box.value) && at === 0);
    }
    none.hidden = fits.length > 0;
  }

  function clear() {
    box.value = '';
    narrow();
    byId('stage').focus({ preventScroll: true });
  }

  /** @param {KeyboardEvent} event */
  function keys(event) {
    if (event.isComposing || (event.key !== 'Enter' && event.key !== 'Escape')) return;
    event.preventDefault();
    event.stopPropagation();
    const found = event.key === 'Enter' && box.value.trim() ? best() : undefined;
    if (event.key === 'Enter' && !found) return;
    clear();
    if (found) choose(found.id);
  }

  store.watch((state) => [liveClasses(state).length], (state) => {
    place.hidden = liveClasses(state).length <= KEYS;
    narrow();
  });
  return { focus: () => !place.hidden && box.focus(), clear: () => box.value && clear() };
}
