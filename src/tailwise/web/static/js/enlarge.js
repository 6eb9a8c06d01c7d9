/** One image of the grid, large, with every class under it: by its key, by a click, or by typing its name. */
import { imageUrl } from './api.js';
import { classButton } from './class_buttons.js';
import { makeClassFilter } from './class_filter.js';
import { h, icon, keycap } from './dom.js';
import { actionOf, placeOf } from './keys.js';
import { liveClasses, store } from './state.js';

/** @typedef {import('./types.js').Picture} Picture */

/**
 * @param {object} acts
 * @param {(at: number) => Picture|undefined} acts.picture    the image at a place
 * @param {(at: number) => string} acts.says                  what is to be done with it, in words
 * @param {(at: number, id: number|null) => void} acts.assign  null: other
 * @param {(at: number) => void} acts.toggle
 * @param {(at: number) => void} acts.closed                  with the image that was shown last
 */
export function makeEnlarge({ picture, says, assign, toggle, closed }) {
  let at = 0;
  const photo = /** @type {HTMLImageElement} */ (h('img', { alt: 'The image, enlarged', draggable: false }));
  const state = h('p', { class: 'soft', role: 'status' });
  const list = h('div', { class: 'classes', role: 'group', 'aria-label': 'Its class' });
  const filter = makeClassFilter({ list, choose: take, leave: () => dialog.focus() });
  const button = (/** @type {string} */ symbol, /** @type {string} */ name, /** @type {() => void} */ act) => h('button', { class: 'quiet', type: 'button', 'aria-label': name, title: name, onclick: act }, icon(symbol));
  const head = h('h2', { id: 'enlarge-title' }, 'Image');
  const dialog = /** @type {HTMLDialogElement} */ (h('dialog', { class: 'sheet enlarge', 'aria-labelledby': 'enlarge-title', tabIndex: -1, onkeydown: press, onclose: () => closed(at) },
    h('header', {}, head, h('span', { class: 'end' }), button('left', 'The image before', () => go(-1)), button('right', 'The next image', () => go(1)), button('close', 'Close', () => dialog.close())),
    h('div', { class: 'enlarged' }, h('div', { class: 'stage still' }, photo),
      h('div', { class: 'choices' }, state, h('button', { class: 'plain', type: 'button', 'data-act': 'flip', onclick: flip }, 'Take it out or in', keycap('x')), filter.element, list))));
  document.body.append(dialog);

  function show() {
    const item = picture(at);
    if (!item) return dialog.close();
    head.textContent = `Image ${at + 1}`;
    photo.src = imageUrl(item, 160);
    const large = new Image();
    large.onload = () => picture(at)?.key === item.key && (photo.src = large.src);
    large.src = imageUrl(item, 1280);
    state.textContent = says(at);
  }

  /** @param {number} step */
  function go(step) {
    if (!picture(at + step)) return;
    at += step;
    show();
  }

  /** @param {number|null} id */
  function take(id) {
    assign(at, id);
    if (picture(at + 1)) go(1);
    else dialog.close();
  }

  function flip() {
    toggle(at);
    show();
  }

  /** @param {KeyboardEvent} event */
  function press(event) {
    if (event.target instanceof HTMLInputElement) return;
    const action = actionOf(event);
    const klass = action === 'digit' ? liveClasses(store.get())[Number(placeOf(event))] : undefined;
    if (klass) take(klass.id);
    else if (action === 'other') take(null);
    else if (action === 'except') flip();
    else if (action === 'left' || action === 'right') go(action === 'left' ? -1 : 1);
    else if (action === 'filter') filter.focus();
    else if (action === 'zoom') dialog.close();
    else return;
    event.preventDefault();
  }

  return {
    /** @param {number} place @param {{find?: boolean}} [how] find: type the name of its class */
    open(place, { find = false } = {}) {
      if (!picture(place)) return;
      at = place;
      list.replaceChildren(...liveClasses(store.get()).map((klass, index) => classButton(klass, index, take)));
      filter.refresh();
      show();
      dialog.showModal();
      dialog.focus();
      if (find) filter.focus();
    },
  };
}
