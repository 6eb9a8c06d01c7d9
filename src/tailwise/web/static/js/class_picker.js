/** A dialog to choose a class: type a part of its name and press Enter, or click. */
import { counted, h, nameTag } from './dom.js';
import { matching } from './matching.js';
import { liveClasses, store } from './state.js';

/** @param {(class_id: number|null) => void} choose gets null for "other" */
export function makeClassPicker(choose) {
  const title = h('h2', { id: 'picker-title' });
  const list = h('div', { class: 'picker-list', role: 'group', 'aria-label': 'Classes' });
  const none = h('p', { class: 'soft', role: 'status', hidden: true }, 'No class fits');
  const box = /** @type {HTMLInputElement} */ (h('input', { type: 'text', autocomplete: 'off', spellcheck: false, placeholder: 'Find a class', 'aria-label': 'Find a class', oninput: draw, onkeydown: keys }));
  const dialog = /** @type {HTMLDialogElement} */ (h('dialog', { class: 'sheet class-picker', 'aria-labelledby': 'picker-title' },
    h('header', {}, title), box, none, list));
  dialog.addEventListener('click', (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);

  const found = () => matching(liveClasses(store.get()), box.value);

  /** @param {number|null} id */
  function pick(id) {
    dialog.close();
    choose(id);
  }

  function draw() {
    const fits = found();
    none.hidden = fits.length > 0;
    list.replaceChildren(
      ...fits.map((klass, at) => h('button', { type: 'button', class: at === 0 && box.value ? 'chip best' : 'chip', 'data-class': klass.id, onclick: () => pick(klass.id) }, nameTag(klass.name))),
      box.value ? '' : h('button', { type: 'button', class: 'chip', 'data-class': 'other', onclick: () => pick(null) }, 'Other: none of these'));
  }

  /** @param {KeyboardEvent} event */
  function keys(event) {
    if (event.isComposing || event.key !== 'Enter') return;
    event.preventDefault();
    const best = box.value.trim() ? found()[0] : undefined;
    if (best) pick(best.id);
  }

  return {
    /** @param {number} images */
    open(images) {
      title.textContent = `Label ${counted(images, 'image')} as …`;
      box.value = '';
      draw();
      dialog.showModal();
      box.focus();
    },
  };
}
