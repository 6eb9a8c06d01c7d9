/** One class in the classes view: its place, name, key and guidelines, each saved when it is left. */
import { counted, h, icon, keycap, nameTag } from './dom.js';
import { examplePictures } from './guidelines.js';

/** @typedef {import('./guidelines.js').Details} Details */
/** @typedef {{element: HTMLElement, update: (klass: Details, at: number, count: number, owner: boolean) => void, complain: (text: string) => void}} Row */

/**
 * @param {number} id
 * @param {object} acts
 * @param {(id: number, patch: object) => Promise<boolean>} acts.change
 * @param {(id: number, to: number) => Promise<boolean>} acts.move   to a place from 0
 * @param {(klass: Details) => void} acts.choose                     examples
 * @param {() => Element[]} acts.rows                                of all classes in use, in their order
 * @returns {Row}
 */
export function makeClassRow(id, acts) {
  /** @type {Details} */ let klass;
  let place = 0;
  const cap = h('span', { class: 'row-cap' });
  const name = field('textarea', { class: 'row-name', rows: 1, maxLength: 200, autocomplete: 'off', spellcheck: false }, () => ({ name: name.value.replaceAll('\n', ' ') }), () => klass.name);
  const hotkey = field('input', { type: 'text', class: 'row-key', maxLength: 1, autocomplete: 'off', spellcheck: false, placeholder: '–' }, () => ({ hotkey: hotkey.value }), () => klass.hotkey ?? '');
  const description = field('textarea', { class: 'row-description', rows: 3, maxLength: 2000, placeholder: 'What belongs to this class, and what does not?' }, () => ({ description: description.value }), () => klass.description);
  const plain = h('div', { class: 'row-plain' });
  const labelled = h('span', { class: 'row-count soft small' });
  const fault = h('p', { class: 'fault', role: 'alert' });
  const up = button('up', 'Move up', () => void acts.move(id, place - 1));
  const down = button('down', 'Move down', () => void acts.move(id, place + 1));
  const grip = h('span', { class: 'grip', 'aria-hidden': 'true', title: 'Drag to another place', onpointerdown: drag }, icon('grip'));
  const retire = h('button', { class: 'plain small-button', type: 'button', 'data-act': 'retire', onclick: () => void acts.change(id, { retired: !klass.retired }) });
  const pictures = h('div', { class: 'row-pictures' });
  const choose = h('button', { class: 'plain small-button', type: 'button', 'data-act': 'examples', onclick: () => acts.choose(klass) }, icon('images'), 'Choose examples');
  const editor = h('div', { class: 'row-editor', id: `class-editor-${id}`, hidden: true },
    h('label', {}, 'Description', description),
    h('div', { class: 'row-side' }, h('label', { class: 'row-key-label' }, 'Own key', hotkey), choose, retire),
    pictures);
  const more = h('button', { class: 'row-more', type: 'button', 'data-act': 'more', 'aria-expanded': 'false', 'aria-controls': editor.id, onclick: () => {
    editor.hidden = !editor.hidden;
    more.setAttribute('aria-expanded', String(!editor.hidden));
  } }, h('span', {}), icon('down'));
  const element = h('li', { class: 'class-row', 'data-class': id }, h('div', { class: 'row-line' }, grip, cap, name, plain, labelled, more, h('span', { class: 'row-moves' }, up, down)), fault, editor);

  /**
   * A field that is saved when it is left or with Enter, and set back with Escape.
   * @param {'input'|'textarea'} tag @param {Record<string, any>} props @param {() => object} patch @param {() => string} kept
   */
  function field(tag, props, patch, kept) {
    const box = /** @type {HTMLInputElement} */ (h(tag, { dir: 'auto', ...props, onchange: save, onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key === 'Escape') {
        box.value = kept();
        complain('');
      } else if (event.key === 'Enter' && !event.isComposing && (tag === 'input' || props.rows === 1)) {
        event.preventDefault();
        box.blur();
      }
    } }));
    async function save() {
      if (box.value === kept()) return complain('');
      await acts.change(id, patch());
    }
    return box;
  }

  /** @param {string} text */
  function complain(text) {
    fault.textContent = text;
  }

  /** Drag by the handle: the row goes where the pointer is let go. @param {PointerEvent} start */
  function drag(start) {
    if (start.button) return;
    start.preventDefault();
    const rows = acts.rows();
    const target = (/** @type {number} */ y) => {
      const others = rows.filter((row) => row !== element);
      return others.filter((row) => y > row.getBoundingClientRect().top + row.getBoundingClientRect().height / 2).length;
    };
    const mark = (/** @type {number|null} */ to) => {
      const others = rows.filter((row) => row !== element);
      others.forEach((row, at) => {
        row.classList.toggle('drop-before', at === to);
        row.classList.toggle('drop-after', to === others.length && at === to - 1);
      });
    };
    const ending = new AbortController();
    const over = (/** @type {PointerEvent} */ event) => mark(target(event.clientY));
    const end = (/** @type {PointerEvent|null} */ event) => {
      ending.abort();
      element.classList.remove('dragged');
      mark(null);
      const to = event ? target(event.clientY) : place;
      if (to !== place) void acts.move(id, to);
    };
    element.classList.add('dragged');
    addEventListener('pointermove', over, { signal: ending.signal });
    addEventListener('pointerup', end, { signal: ending.signal });
    addEventListener('pointercancel', () => end(null), { signal: ending.signal });
  }

  /** @param {Details} now @param {number} at @param {number} count @param {boolean} owner */
  function update(now, at, count, owner) {
    const used = !now.retired;
    klass = now;
    place = at;
    for (const [box, value] of /** @type {[HTMLInputElement, string][]} */ ([[name, now.name], [hotkey, now.hotkey ?? ''], [description, now.description]])) {
      if (box !== document.activeElement) box.value = value;
    }
    name.setAttribute('aria-label', `Name of ${now.name}`);
    hotkey.setAttribute('aria-label', `Own key of ${now.name}`);
    description.setAttribute('aria-label', `Description of ${now.name}`);
    up.setAttribute('aria-label', `Move ${now.name} up`);
    down.setAttribute('aria-label', `Move ${now.name} down`);
    cap.replaceChildren(used && now.key ? keycap(now.key, `key ${now.key}`) : h('span', { class: 'cap none' }));
    labelled.textContent = counted(now.labelled, 'label');
    retire.textContent = now.retired ? 'Restore' : 'Retire';
    retire.setAttribute('aria-label', `${retire.textContent} ${now.name}`);
    retire.title = now.retired ? 'Offer it again, with its labels' : 'Offer it no more; its labels are kept';
    choose.setAttribute('aria-label', `Choose examples of ${now.name}`);
    const guide = [now.description && 'Described', now.examples.length && counted(now.examples.length, 'example')].filter(Boolean).join(' · ');
    more.firstElementChild?.replaceChildren(guide || 'Guidelines');
    more.setAttribute('aria-label', `${guide || 'Guidelines'}: edit ${now.name}`);
    more.classList.toggle('empty', !guide);
    pictures.replaceChildren(examplePictures(now));
    up.toggleAttribute('disabled', at <= 0);
    down.toggleAttribute('disabled', at >= count - 1);
    for (const part of [grip, up, down]) part.hidden = !owner || !used;
    for (const part of [hotkey.parentElement, choose]) if (part) part.hidden = !used;
    name.hidden = !owner;
    plain.hidden = owner;
    more.hidden = !owner;
    if (!owner) editor.hidden = true;
    plain.replaceChildren(nameTag(now.name), now.description ? h('p', { class: 'soft small', dir: 'auto' }, now.description) : '', examplePictures(now));
  }

  return { element, update, complain };
}

/** @param {string} symbol @param {string} title @param {() => void} act */
function button(symbol, title, act) {
  return h('button', { class: 'quiet', type: 'button', title, 'data-act': symbol, onclick: act }, icon(symbol));
}
